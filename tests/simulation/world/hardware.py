"""One physical machine: its GPUs, which of them are sick, and whose containers really run on them."""

from __future__ import annotations

from topology.annotations.records import Holder, Sharer
from topology.formats.catalog import machine
from topology.node.model import NodeTopology

SHARE_GIB = 12
"""What shares may take of any GPU."""


class Hardware:
    """What is true, whatever the API says."""

    def __init__(self, node: str, machine_name: str) -> None:
        self.sick: set[str] = set()
        self._node = node
        self._machine_name = machine_name
        self._generation = 0
        self._running: dict[str, tuple[Holder, frozenset[str]]] = {}
        self.topology = self._build()

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs by position."""
        return tuple(gpu.uuid for gpu in self.topology.gpus)

    @property
    def holders(self) -> dict[str, Holder]:
        """GPU → whose container has it, as the kubelet says it right now; of one that is shared one of them."""
        found = {gpu: holder for holder, gpus in self._running.values() for gpu in sorted(gpus)}
        return {gpu: Holder(who.namespace, who.name, who.container) for gpu, who in found.items()}

    @property
    def sharers(self) -> dict[str, tuple[Sharer, ...]]:
        """GPU → whose containers have shares of it."""
        found: dict[str, tuple[Sharer, ...]] = {}
        for holder, gpus in self._running.values():
            if isinstance(holder, Sharer):
                found |= {gpu: (*found.get(gpu, ()), holder) for gpu in sorted(gpus)}
        return found

    def replace(self) -> tuple[str, ...]:
        """Put another machine in its place; returns the UIDs of the pods whose containers died with this one."""
        self._generation += 1
        self.sick.clear()
        self.topology = self._build()
        dead, self._running = tuple(self._running), {}
        return dead

    def run(self, uid: str, holder: Holder, gpus: frozenset[str]) -> None:
        """Start a pod's containers on these GPUs."""
        self._running[uid] = holder, gpus

    def stop(self, uid: str) -> None:
        """End them."""
        self._running.pop(uid, None)

    def runs(self, uid: str) -> bool:
        """Whether the pod's containers run."""
        return uid in self._running

    def users_of(self, gpus: frozenset[str]) -> tuple[str, ...]:
        """Return the UIDs of the pods whose containers use any of these GPUs."""
        return tuple(uid for uid, (_, held) in self._running.items() if held & gpus)

    def _build(self) -> NodeTopology:
        return machine(self._machine_name, host=f"{self._node}-{self._generation}")
