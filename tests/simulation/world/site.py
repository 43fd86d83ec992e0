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
from tests.simulation.world.hardware import SHARE_GIB, Hardware
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
        self._register({})

    def delete_node(self) -> None:
        """Let somebody delete the Node object; it comes back after a while, and not always on the same machine."""
        with self._server.writing("admin") as store:
            before = store.get(NODES, "", self.name)
            store.delete(NODES, "", self.name)
        self.is_registered = False
        self._comes_back = asyncio.create_task(self._come_back(annotations_of(before)))

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
        gpus = len(self.hardware.gpus)
        count = {keys.GPU_RESOURCE: str(gpus), keys.SHARE_RESOURCE: str(gpus * SHARE_GIB)}
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
