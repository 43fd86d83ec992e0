"""One place in the cluster: a machine with its kubelet and agent, and the Node object that stands for it, which may go."""

from __future__ import annotations

import asyncio
from random import Random

from benchmarks.simulated.double.patch import merge_patch
from benchmarks.simulated.double.resources import NODES, PODS, Object
from tests.simulation.storm import Storm
from tests.simulation.trace import Trace
from tests.simulation.wording import annotations_of
from tests.simulation.world.agent import Agent
from tests.simulation.world.hardware import PROFILES, SHARE_GIB, Hardware
from tests.simulation.world.kubelet import Kubelet, Witness
from tests.simulation.world.server import NAMESPACE, Server
from tests.world.faults import Fault
from topology.annotations import keys

ORPHAN_SECONDS = 40.0
"""After this long without a node its pods are failed and removed by the pod garbage collector of Kubernetes."""


class Site:
    """Registered from the start."""

    def __init__(
        self,
        name: str,
        machine: str,
        server: Server,
        storm: Storm,
        trace: Trace,
        witness: Witness,
        random: Random,
    ) -> None:
        self.name = name
        self.hardware = Hardware(name, machine)
        self.kubelet = Kubelet(
            name, self.hardware, server, storm, trace, witness, Random(f"kubelet {random.getrandbits(64)}")
        )
        self.agent = Agent(name, self.hardware, server, storm, trace, Random(f"agent {random.getrandbits(64)}"))
        self._server = server
        self._storm = storm
        self._trace = trace
        self._random = random
        self._ledger: str | None = None
        self._comes_back: asyncio.Task[None] | None = None
        self.is_registered = False
        self.topologies = 0
        """How many there were of this name: of a node that changes too often extenders read none."""
        self._register({})

    def delete_node(self) -> None:
        """Let somebody delete the Node object; it comes back after a while, and not always on the same machine."""
        with self._server.writing("admin") as store:
            before = store.get(NODES, "", self.name)
            store.delete(NODES, "", self.name)
        self.is_registered = False
        self._comes_back = asyncio.create_task(self._come_back(annotations_of(before)))

    def cut(self, gpu: str, profile: str) -> None:
        """Cut a GPU into slices, or make it whole, whoever has it; the kubelet hears at once, the agent at its next look."""
        self.topologies += 1
        self.hardware.cut(gpu, profile)
        if self.is_registered:
            counts = {"status": {"allocatable": self._counts(), "capacity": self._counts()}}
            with self._server.writing(f"kubelet-{self.name}") as store:
                store.modify(NODES, "", self.name, lambda node: merge_patch(node, counts), subresource="status")

    def _counts(self) -> dict[str, str]:
        """Return how much of each resource the machine has."""
        whole, cut = self.hardware.offered(), self._storm.mix.slice_ratio
        count = {keys.GPU_RESOURCE: str(len(whole)), keys.SHARE_RESOURCE: str(len(whole) * SHARE_GIB)}
        slices = {keys.MIG_PREFIX + profile: str(len(self.hardware.offered(profile))) for profile in PROFILES}
        return count | (slices if cut else {})

    async def _come_back(self, before: dict[str, str]) -> None:
        away = self._random.choice(
            (self._random.uniform(0.5, 10.0), self._random.uniform(0.5, 10.0), ORPHAN_SECONDS + 5.0)
        )
        how = self._random.choice((Fault.NODE_AGAIN, Fault.NODE_REPLACED, Fault.NODE_RESTORED))
        if away > ORPHAN_SECONDS:
            await self._storm.sleep(ORPHAN_SECONDS)
            self._collect_orphans()
            away -= ORPHAN_SECONDS
        await self._storm.sleep(away)
        self._trace.fault(how, self.name)
        if how is Fault.NODE_REPLACED or (how is Fault.NODE_RESTORED and self._random.random() < 0.5):
            self.kubelet.lose_hardware()
        restored = {keys.LEDGER: before[keys.LEDGER]} if how is Fault.NODE_RESTORED and keys.LEDGER in before else {}
        self._register(restored)
        self.agent.restart()

    def _register(self, annotations: dict[str, str]) -> None:
        self.topologies += 1
        count = self._counts()
        status = {"allocatable": count, "capacity": count, "conditions": [{"type": "Ready", "status": "True"}]}
        metadata: Object = {"name": self.name} | ({"annotations": annotations} if annotations else {})
        with self._server.writing(f"kubelet-{self.name}") as store:
            store.create(NODES, "", {"metadata": metadata, "status": status})
        self.is_registered = True

    def _collect_orphans(self) -> None:
        with self._server.writing("pod-gc") as store:
            for pod in [pod for pod in self._server.pods() if pod["spec"].get("nodeName") == self.name]:
                name = pod["metadata"]["name"]
                store.modify(PODS, NAMESPACE, name, _fail, subresource="status")
                store.delete(PODS, NAMESPACE, name, grace_period_seconds=0)


def _fail(pod: Object) -> Object:
    failed: Object = merge_patch(pod, {"status": {"phase": "Failed"}})
    return failed
