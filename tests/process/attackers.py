"""`python -m tests.process.attackers KUBECONFIG URL NAME…`: what tenants and a stolen agent's token can do, until it is killed.

Each attack is an async generator: the first step prepares it, and each further one is a strike, at a rate that is bounded.
It says `at work` when all are prepared. It is a program of its own and gives way to others (`nice`), because in reality it
would not share their cores.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from random import Random

import aiohttp

from benchmarks.processes.client import MERGE_PATCH, ApiClient, Json
from benchmarks.simulated.fleet import SimulatedNode, agent_annotations, gpu_pod, node_object
from tests.cluster.objects import NODES, PODS
from tests.cluster.test_heavy_pods import heavy
from tests.process.caller import Caller, schedulable
from tests.security.worst_topology import random_topology
from topology.errors import PayloadError

NICE = 10
NOBODY = "nobody"
"""The scheduler of all their pods, so that whoever looks for pods that wait passes them over."""
FORGED = "forged"
LEAVING = "leaving"
READY_WITHIN_SECONDS = 120.0
_AT_WORK = b"at work\n"
_UNLIKE_GPUS = 16
_TOPOLOGIES = 20
_LEAVING = 8
_WAITING = 20


@dataclass(frozen=True)
class Field:
    """Where attacks happen."""

    api: ApiClient
    caller: Caller

    async def create(self, pod: Json) -> Json:
        """Create a pod that no scheduler takes up."""
        return (await self.api.call("POST", PODS, {**pod, "spec": {**pod["spec"], "schedulerName": NOBODY}})).ok()

    async def patch(self, path: str, metadata: Json) -> None:
        """Change what an object says of itself."""
        (await self.api.call("PATCH", path, {"metadata": metadata}, content_type=MERGE_PATCH)).ok()


Attack = AsyncGenerator[None, None]


async def heavy_pods(field: Field) -> Attack:
    """Have eight gated pods of 8.4 MB of JSON, and patch one of 2.4 MB."""
    for number in range(8):
        await field.create(heavy(f"heavy-{number}", 1_400_000))
    await field.create(heavy("busy", 400_000))
    for number in count():
        yield
        await field.patch(f"{PODS}/busy", {"labels": {"patched": str(number)}})


async def largest_pod(field: Field) -> Attack:
    """Have a waiting pod with GPUs that is as large as etcd takes, and touch it: it has no room to grow."""
    pod = gpu_pod("largest", 1)
    pod["spec"]["containers"][0]["env"] = [{"name": f"E{n}", "value": "<" * 104_000} for n in range(15)]
    await field.create(pod)
    for number in count():
        yield
        await field.patch(f"{PODS}/largest", {"labels": {"n": str(number % 10)}})


async def busy_tenant(field: Field) -> Attack:
    """Have pods with GPUs that wait, and patch one after the other."""
    for number in range(_WAITING):
        await field.create(gpu_pod(f"waiting-{number}", 1))
    for number in count():
        yield
        await field.patch(f"{PODS}/waiting-{number % _WAITING}", {"labels": {"patched": str(number)}})


async def forged_topology(field: Field) -> Attack:
    """Write one topology of sixteen unlike GPUs after the other on one node, as the holder of its agent's token can."""
    random, forged = Random(1), list[Json]()
    while len(forged) < _TOPOLOGIES:
        try:
            forged.append(agent_annotations(random_topology(random, _UNLIKE_GPUS)))
        except PayloadError:  # larger than a payload may be
            continue
    node = node_object(SimulatedNode(FORGED, "dgx-2"))
    node.setdefault("spec", {})["unschedulable"] = (
        True  # a pod that was placed by a forgery has no GPU when the next one comes
    )
    node["metadata"]["annotations"] |= forged[0]
    (await field.api.call("POST", NODES, node)).ok()
    for written in cycle(forged):
        yield
        await field.patch(f"{NODES}/{FORGED}", {"annotations": written})


async def leaving_nodes(field: Field) -> Attack:
    """Let cordoned nodes with ledgers leave and come back."""
    nodes = [node_object(SimulatedNode(f"{LEAVING}-{number}", "hgx-h100")) for number in range(_LEAVING)]
    for node in nodes:
        node["spec"] = {"unschedulable": True}
        (await field.api.call("POST", NODES, node)).ok()
    for node in cycle(nodes):
        yield
        (await field.api.call("DELETE", f"{NODES}/{node['metadata']['name']}")).ok()
        (await field.api.call("POST", NODES, node)).ok()


async def failing_binds(field: Field) -> Attack:
    """Have a pod bound again and again that the API server refuses to bind, because it is gated; always to the same node."""
    pod = await field.create(gpu_pod("failing", 1, schedulingGates=[{"name": "example.test/never"}]))
    node = (await schedulable(field.api))[0]
    while True:
        yield
        await field.caller.choose(pod)
        assert await field.caller.bind(pod, node), "a gated pod was bound"


async def preemption(field: Field) -> Attack:
    """Ask for victims among the pods of hundreds of nodes."""
    pods = (await field.api.call("GET", PODS)).ok()["items"]
    victims = {
        pod["spec"]["nodeName"]: {"Pods": [{"UID": pod["metadata"]["uid"]}], "NumPDBViolations": 0}
        for pod in pods
        if pod["metadata"]["name"].endswith("-occupant")
    }
    pod = await field.create(gpu_pod("important", 8))
    pod["spec"]["priority"] = 1000
    body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    while True:
        yield
        await field.caller.ask("preempt", body)


ATTACKS: dict[str, tuple[Callable[[Field], Attack], float]] = {
    "preemption": (preemption, 2.0),
    "heavy_pods": (heavy_pods, 0.5),
    "largest_pod": (largest_pod, 2.0),
    "busy_tenant": (busy_tenant, 0.05),
    "forged_topology": (forged_topology, 0.5),
    "leaving_nodes": (leaving_nodes, 1.0),
    "failing_binds": (failing_binds, 0.5),
}
"""Each with the least seconds between two strikes, in the order in which they are prepared."""


async def strike(attack: Attack, period_seconds: float) -> None:
    """Go on with an attack for ever; a failure ends the program, because it would be an attack less."""
    async for _ in attack:
        await asyncio.sleep(period_seconds)


async def main(kubeconfig: Path, url: str, chosen: Sequence[str]) -> None:
    """Prepare these attacks, say so, and go on with all of them."""
    async with ApiClient.from_kubeconfig(kubeconfig) as api, aiohttp.ClientSession() as session:
        field = Field(api, Caller(session, url, await schedulable(api)))
        attacks = [(make(field), period) for make, period in map(ATTACKS.__getitem__, chosen)]
        for attack, _ in attacks:
            await anext(attack)
        print("at work", flush=True)
        async with asyncio.TaskGroup() as tasks:
            for attack, period in attacks:
                tasks.create_task(strike(attack, period))


@asynccontextmanager
async def attacked(kubeconfig: Path, url: str, chosen: Sequence[str]) -> AsyncIterator[None]:
    """Run the program while the context is open, which is entered when all is prepared; it must not have ended before."""
    command = (sys.executable, "-m", "tests.process.attackers", str(kubeconfig), url, *chosen)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_WITHIN_SECONDS):
            assert await process.stdout.readline() == _AT_WORK
        yield
        assert process.returncode is None, "the attacks have come to an end"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


if __name__ == "__main__":
    os.nice(NICE)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
