"""SEC10: what must stay secret is planted wherever our programs come by it, and turns up nowhere that they write."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest

from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import free_port
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, node_object
from benchmarks.simulated.scheduler_loop import BoundPod, SchedulerLoop
from tests.cluster.component import Component
from tests.extender.polling import eventually
from tests.nvml.library import FakeNvml, has_compiler, machine
from tests.security.target import Target, add_token, target
from topology.annotations import keys

PLANTED = "planted-7f3a9c"
TALKATIVE = {"log": {"level": "debug"}}
PAGES = ("/", "/nodes/n1", "/pods/default/train", "/v1/inspect/nodes", "/v1/inspect/pods", "/v1/inspect/config",
         "/v1/inspect/pods/default/train", "/v1/inspect/pods/default/greedy", "/metrics", "/readyz?verbose")  # fmt: skip


def secretive_pod(name: str, requests: dict[str, str]) -> Json:
    """Return a pod with secrets where people leave them: in variables, arguments and what kubectl has noted."""
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"env":"{PLANTED}"}}'}
    pod = gpu_pod(name, 2, applied | requests, schedulerName="gputopo", imagePullSecrets=[{"name": PLANTED}])
    secrets = {"env": [{"name": "TOKEN", "value": PLANTED}], "args": ["--password", PLANTED]}
    pod["spec"]["containers"][0] |= secrets
    return pod


async def use(extender: Target, session: aiohttp.ClientSession) -> None:
    """Do with an extender what can be done: place a pod, fail to, and be misunderstood."""
    for name, requests in (("train", {}), ("greedy", {keys.MIN_BANDWIDTH: "99999"})):
        pod = (await extender.api.call("POST", "/api/v1/namespaces/default/pods", secretive_pod(name, requests))).ok()
        outcome = await SchedulerLoop(extender.api, session, extender.url).schedule(pod)
        assert isinstance(outcome, BoundPod) == (name == "train")
    for verb in ("filter", "prioritize", "bind"):
        for body in (PLANTED, f'{{"Pod":"{PLANTED}"}}', f'{{"PodUID":["{PLANTED}"]}}', f'{{"{PLANTED}":'):
            async with session.post(f"{extender.url}/v1/extender/{verb}", data=body) as answer:
                assert PLANTED not in await answer.text()


async def everything_written(extender: Target, session: aiohttp.ClientSession) -> str:
    """Return all that the extender has written: log, events, ledgers, placements, pages and metrics."""
    events = (await extender.api.call("GET", "/api/v1/namespaces/default/events")).ok()["items"]
    nodes = (await extender.api.call("GET", "/api/v1/nodes")).ok()["items"]
    pod = (await extender.api.call("GET", "/api/v1/namespaces/default/pods/train")).ok()
    written = [extender.log, str(events), str(nodes), pod["metadata"]["annotations"][keys.PLACEMENT]]
    for page in PAGES:
        async with session.get(extender.url + page) as answer:
            assert answer.status == 200, page
            written.append(await answer.text())
    return "\n".join(written)


@pytest.mark.slow
async def test_sec10_extender_tells_no_secret(tmp_path: Path) -> None:
    """Its token, its callers' headers and what pods carry are in no log, event, page, metric or annotation."""
    headers = {"Authorization": f"Bearer {PLANTED}", "Cookie": PLANTED}
    node = SimulatedNode("n1", "dgx-a100")
    async with (
        target(tmp_path, node, settings=TALKATIVE, token=PLANTED) as extender,
        aiohttp.ClientSession(headers=headers) as session,
    ):
        await use(extender, session)

        async def told() -> bool:
            text = await everything_written(extender, session)
            return "GPUTopologyPlaced" in text and "GPUTopologyUnsatisfied" in text

        await eventually(told)
        assert PLANTED not in await everything_written(extender, session)


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="no C compiler to build the fake NVML with")
async def test_sec10_agent_tells_no_secret(tmp_path: Path) -> None:
    """Neither when it publishes nor when it is refused."""
    port, driver = free_port(), FakeNvml(tmp_path).environment(machine("hgx_h100"))
    settings = {"apiVersion": "config.gputopo.dev/v1alpha1", "kind": "AgentConfiguration", **TALKATIVE}
    settings |= {"nodeName": "n1", "health": {"host": "127.0.0.1", "port": port}, "discovery": {"interval": "1s"}}
    (tmp_path / "agent.yaml").write_bytes(msgspec.yaml.encode(settings))
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        add_token(tmp_path / "kubeconfig", PLANTED)
        environment = ["env", *(f"{key}={value}" for key, value in driver.items())]
        files = ("--config", tmp_path / "agent.yaml", "--kubeconfig", tmp_path / "kubeconfig")
        program = [*environment, sys.executable, "-m", "agent", *map(str, files)]
        agent = Component("agent", program, tmp_path, f"http://127.0.0.1:{port}/readyz")
        agent.start()
        try:
            await eventually(lambda: logged(agent, "404"))
            await api.call("POST", "/api/v1/nodes", node_object(SimulatedNode("n1", "hgx-h100")))
            await asyncio.to_thread(agent.wait_ready)
            node = (await api.call("GET", "/api/v1/nodes/n1")).ok()
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                written = agent.log.read_text() + str(node) + await answer.text()
        finally:
            await asyncio.to_thread(agent.stop)
    assert keys.TOPOLOGY in written and PLANTED not in written


async def logged(program: Component, text: str) -> bool:
    return text in program.log.read_text()
