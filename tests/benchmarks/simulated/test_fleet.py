"""Simulated nodes say what a real agent would, and simulated kubelets live up to what the API says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from benchmarks.processes.client import MERGE_PATCH, ApiClient, Json
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer, Faultless, Handler
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, fleet, gpu_pod, join, node_object
from benchmarks.simulated.pod_life import EXIT_CODE, message, next_status
from tests.world.kubelets import Kubelets, running_kubelets
from topology.annotations import keys
from topology.annotations.codec import decode_topology, digest
from topology.annotations.records import (
    PlacementRecord,
    decode_ledger,
    decode_observed,
    decode_placement,
    encode_placement,
)
from topology.annotations.status_codec import decode_status

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def api() -> AsyncIterator[ApiClient]:
    """Return a client of an empty API double."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as client:
        yield client


async def run_pod(api: ApiClient, name: str, gpus: tuple[str, ...], node: str = "n", **spec: Any) -> None:
    """Create a pod and bind it to `node` with these GPUs."""
    (await api.call("POST", PODS, gpu_pod(name, len(gpus), **spec))).ok()
    placement = {keys.PLACEMENT: encode_placement(PlacementRecord({"main": gpus}))}
    binding = {"metadata": {"name": name, "annotations": placement}, "target": {"kind": "Node", "name": node}}
    (await api.call("POST", f"{PODS}/{name}/binding", binding)).ok()


async def eventually(ask: Callable[[], Awaitable[object]], expected: object) -> None:
    """Wait until `ask` answers `expected`; fail with its last answer after a minute."""
    deadline = asyncio.get_running_loop().time() + 60
    while (answer := await ask()) != expected and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert answer == expected


async def phase(api: ApiClient, name: str) -> str:
    answer = await api.call("GET", f"{PODS}/{name}")
    return str(answer.body["status"]["phase"]) if answer.code == 200 else "gone"


async def held(api: ApiClient, node: str = "n") -> dict[str, str]:
    annotations = (await api.call("GET", f"/api/v1/nodes/{node}")).ok()["metadata"]["annotations"]
    return {gpu: f"{who.name}/{who.container}" for gpu, who in decode_observed(annotations[keys.OBSERVED]).gpus.items()}


def bound_pod(**status: Any) -> Json:
    pod = gpu_pod("p", 1)
    return {**pod, "metadata": {"name": "p", "annotations": {}}, "status": {"phase": "Pending", **status}}


def test_a_simulated_node_says_what_its_machine_is() -> None:
    """Its annotations decode to the catalogue's machine, and the digest is that of the text."""
    node = SimulatedNode("n", "dgx-1v")
    made = node_object(node)
    annotations = made["metadata"]["annotations"]
    assert decode_topology(annotations[keys.TOPOLOGY]) == node.topology
    assert annotations[keys.TOPOLOGY_DIGEST] == digest(annotations[keys.TOPOLOGY])
    assert decode_status(annotations[keys.STATUS]).unhealthy == frozenset()
    assert made["status"]["allocatable"][keys.GPU_RESOURCE] == "8"


def test_no_two_nodes_share_a_gpu() -> None:
    """UUIDs are unique over the fleet, and the same in every run."""
    nodes = fleet({"dgx-1v": 3, "t4-4": 2})
    uuids = [gpu.uuid for node in nodes for gpu in node.topology.gpus]
    assert len(set(uuids)) == len(uuids) == 3 * 8 + 2 * 4
    assert uuids == [gpu.uuid for node in fleet({"dgx-1v": 3, "t4-4": 2}) for gpu in node.topology.gpus]


async def test_used_gpus_are_claimed_and_held(api: ApiClient) -> None:
    """The occupant's placement, the ledger's claims and the node's used positions are one."""
    node = SimulatedNode("n", "dgx-1v", used=(0, 3))
    await join(api, [node, SimulatedNode("other", "dgx-1v")])
    pod = (await api.call("GET", f"{PODS}/n-occupant")).ok()
    found = (await api.call("GET", "/api/v1/nodes/n")).ok()["metadata"]
    used = tuple(node.topology.gpus[position].uuid for position in (0, 3))
    ledger = decode_ledger(found["annotations"][keys.LEDGER])
    assert decode_placement(pod["metadata"]["annotations"][keys.PLACEMENT]).containers == {"main": used}
    assert {claim.gpu: claim.uid for claim in ledger.claims} == dict.fromkeys(used, pod["metadata"]["uid"])
    assert (ledger.node_uid, pod["spec"]["nodeName"]) == (found["uid"], "n")


async def test_a_bound_pod_runs_and_holds_its_gpus(api: ApiClient) -> None:
    """Also one that was bound before the kubelets came."""
    await join(api, [SimulatedNode("n", "dgx-1v")])
    await run_pod(api, "early", ("GPU-a",))
    async with Kubelets(api):
        await run_pod(api, "late", ("GPU-b", "GPU-c"))
        await eventually(lambda: phase(api, "late"), "Running")
        await eventually(lambda: held(api), {"GPU-a": "early/main", "GPU-b": "late/main", "GPU-c": "late/main"})


async def test_a_deleted_pod_goes_and_lets_go(api: ApiClient) -> None:
    """Its containers are reported terminated before the object is gone: that is the proof that others wait for."""
    await join(api, [SimulatedNode("n", "dgx-1v")])
    async with Kubelets(api):
        await run_pod(api, "p", ("GPU-a",))
        await eventually(lambda: held(api), {"GPU-a": "p/main"})
        since = (await api.call("GET", PODS)).ok()["metadata"]["resourceVersion"]
        await api.call("DELETE", f"{PODS}/p")
        await eventually(lambda: phase(api, "p"), "gone")
        await eventually(lambda: held(api), {})
    async with aclosing(api.watch(PODS, resourceVersion=since)) as events:
        last = await anext(pod async for kind, pod in events if kind == "DELETED")
    assert "terminated" in last["status"]["containerStatuses"][0]["state"]


async def test_a_kubelet_that_died_is_no_secret(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error ends the block: pods that did not start are no riddle then."""
    died = asyncio.Event()

    async def die(_: Kubelets, version: str) -> None:
        died.set()
        raise KeyError(version)

    monkeypatch.setattr(Kubelets, "_watch", die)
    with pytest.raises(KeyError):
        async with Kubelets(api):
            await died.wait()


async def test_a_deleted_pod_runs_on_for_its_time(api: ApiClient) -> None:
    """As long as its containers have time to end, it holds its GPUs."""
    await join(api, [SimulatedNode("n", "dgx-1v")])
    async with Kubelets(api, termination_seconds=60):
        await run_pod(api, "p", ("GPU-a",))
        await eventually(lambda: held(api), {"GPU-a": "p/main"})
        await api.call("DELETE", f"{PODS}/p")
        await run_pod(api, "q", ("GPU-b",))
        await eventually(lambda: held(api), {"GPU-a": "p/main", "GPU-b": "q/main"})
        assert await phase(api, "p") == "Running"


@pytest.mark.parametrize(("code", "expected"), [("0", "Succeeded"), ("7", "Failed")])
async def test_a_pod_ends_on_request(api: ApiClient, code: str, expected: str) -> None:
    """An annotation ends its containers; the pod stays, the GPUs are let go of."""
    await join(api, [SimulatedNode("n", "dgx-1v")])
    async with Kubelets(api):
        await run_pod(api, "p", ("GPU-a",))
        await eventually(lambda: held(api), {"GPU-a": "p/main"})
        patch = {"metadata": {"annotations": {EXIT_CODE: code}}}
        (await api.call("PATCH", f"{PODS}/p", patch, content_type=MERGE_PATCH)).ok()
        await eventually(lambda: phase(api, "p"), expected)
        await eventually(lambda: held(api), {})


class Gate(Faultless):
    """While it is shut, watches end at their next line and new ones wait."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    async def exchange(self, request: web.BaseRequest, handler: Handler) -> web.StreamResponse:
        if "watch" in request.query:
            await self.open.wait()
        return await handler(request)

    async def stream(self, request: web.BaseRequest, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            if not self.open.is_set():
                return
            yield line


async def test_kubelets_survive_a_forgetful_server() -> None:
    """A cut watch and a history that was compacted meanwhile cost a new list, and no pod."""
    store, gate = ObjectStore(), Gate()
    async with ApiServer(store, faults=gate) as server, ApiClient(server.url) as api, Kubelets(api):
        await join(api, [SimulatedNode("n", "dgx-1v")])
        await run_pod(api, "before", ("GPU-a",))
        await eventually(lambda: held(api), {"GPU-a": "before/main"})
        gate.open.clear()
        await run_pod(api, "meanwhile", ("GPU-b",))
        await api.call("DELETE", f"{PODS}/before", {"gracePeriodSeconds": 0})
        store.compact()
        gate.open.set()
        await eventually(lambda: held(api), {"GPU-b": "meanwhile/main"})


@pytest.mark.slow
async def test_a_hundred_pods_on_forty_nodes(api: ApiClient) -> None:
    """One watch feeds all kubelets; every pod runs on its node."""
    nodes = fleet({"dgx-1v": 40})
    await join(api, nodes)
    async with Kubelets(api):
        for number in range(100):
            await run_pod(api, f"p{number}", (f"GPU-{number}",), node=nodes[number % 40].name)
        await eventually(lambda: _running(api), 100)


async def _running(api: ApiClient) -> int:
    return len((await api.call("GET", PODS, fieldSelector="status.phase=Running")).ok()["items"])


async def test_kubelets_can_live_in_a_thread(tmp_path: Path) -> None:
    """Callers without an event loop have them as a plain context."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        await join(api, [SimulatedNode("n", "dgx-1v")])
        await run_pod(api, "p", ("GPU-a",))

        def work() -> None:
            with running_kubelets(tmp_path / "kubeconfig"):
                asyncio.run_coroutine_threadsafe(eventually(lambda: phase(api, "p"), "Running"), loop).result()

        loop = asyncio.get_running_loop()
        await asyncio.to_thread(work)


def test_init_containers_end_and_sidecars_run() -> None:
    """An ordinary init container has succeeded when the pod runs; a restartable one runs with it."""
    pod = bound_pod()
    pod["spec"]["initContainers"] = [{"name": "load"}, {"name": "proxy", "restartPolicy": "Always"}]
    status = next_status(pod, "now", terminating=False)
    assert status is not None
    states = {init["name"]: list(init["state"]) for init in status["initContainerStatuses"]}
    assert states == {"load": ["terminated"], "proxy": ["running"]}


@pytest.mark.parametrize("final", ["Succeeded", "Failed"])
def test_an_ended_pod_has_nothing_more_to_say(final: str) -> None:
    """A final phase is final, deleted or not."""
    assert next_status(bound_pod(phase=final), "now", terminating=True) is None


@pytest.mark.parametrize("deleted", [True, False])
def test_a_kubelet_lets_go_of_a_deleted_pod_alone(*, deleted: bool) -> None:
    """One that has ended stays, for people to read; one that is deleted goes when its last status is told, and by its UID."""
    pod = bound_pod(phase="Succeeded")
    pod["metadata"] |= {"namespace": "default", "name": "p", "uid": "u"} | (
        {"deletionTimestamp": "now"} if deleted else {}
    )
    last = message(pod, {"phase": "Failed"}, stopped=True)
    assert last is not None
    assert (last.method, last.path) == ("PATCH", "/api/v1/namespaces/default/pods/p/status")
    told = message(pod, None, stopped=True)
    assert (told and told.method) == ("DELETE" if deleted else None)
    assert told is None or told.body["preconditions"] == {"uid": "u"}
    assert message(pod, None, stopped=False) is None


def test_conditions_of_others_are_kept() -> None:
    """PodScheduled is the scheduler's word."""
    scheduled = {"type": "PodScheduled", "status": "True"}
    status = next_status(bound_pod(conditions=[scheduled]), "now", terminating=False)
    assert status is not None
    assert status["conditions"][0] == scheduled
    assert {"Ready", "ContainersReady"} < {condition["type"] for condition in status["conditions"]}
