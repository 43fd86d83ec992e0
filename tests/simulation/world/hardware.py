"""One physical machine: its GPUs and what they are cut into, which of them are sick, and whose containers really run on them.

To cut a GPU anew stops no container: what it has it keeps, until it ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from topology.annotations.records import Holder, Sharer
from topology.formats.catalog import machine
from topology.node.model import NodeTopology
from topology.node.slices import Slice

SHARE_GIB = 12
"""What shares may take of any GPU."""
PROFILES = {"3g.20gb": 2, "1g.5gb": 3}
"""Of MIG slices: into how many a GPU is cut."""


def gpu_of(device: str) -> str:
    """Return the GPU that a device is, or is or was a slice of."""
    return device.removeprefix("MIG-").partition("/")[0]


def overlap(one: str, other: str) -> bool:
    """Whether two devices are the same silicon: all of one GPU are, but for slices of one cut."""
    if gpu_of(one) != gpu_of(other):
        return False
    cuts = [device.split("/")[1] if "/" in device else None for device in (one, other)]
    return one == other or None in cuts or cuts[0] != cuts[1]


def overlapping(device: str, others: Collection[str]) -> bool:
    """Whether one of several devices is the same silicon as another."""
    return any(overlap(device, other) for other in others)


class Hardware:
    """What is true, whatever the API says."""

    def __init__(self, node: str, machine_name: str) -> None:
        self.sick: set[str] = set()
        self._node = node
        self._machine_name = machine_name
        self._generation = 0
        self._running: dict[str, tuple[Holder, frozenset[str]]] = {}
        self._profiles: dict[str, str] = {}
        self._cuts = 0
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
        self._profiles.clear()
        self.topology = self._build()
        dead, self._running = tuple(self._running), {}
        return dead

    def offered(self, profile: str = "") -> tuple[str, ...]:
        """Return what containers can get as it is cut now: the slices of a profile, or the whole GPUs."""
        if profile:
            return tuple(each.uuid for each in self.topology.slices if each.profile == profile)
        return tuple(gpu.uuid for gpu in self.topology.gpus if not gpu.mig_enabled)

    def profile_of(self, gpu: str) -> str:
        """Return what a GPU is cut into; empty: it is whole."""
        return self._profiles.get(gpu, "")

    def cut(self, gpu: str, profile: str) -> None:
        """Cut a GPU into slices of a profile, or make it whole; slices are never the same as before."""
        self._cuts += 1
        self._profiles[gpu] = profile
        slices = [each for each in self.topology.slices if gpu_of(each.uuid) != gpu]
        index = next(each.index for each in self.topology.gpus if each.uuid == gpu)
        slices += [
            Slice(index, f"MIG-{gpu}/{self._cuts}/{number}", profile, 5 << 30, number, 1, number, 0)
            for number in range(PROFILES.get(profile, 0))
        ]
        gpus = tuple(replace(each, mig_enabled=bool(self.profile_of(each.uuid))) for each in self.topology.gpus)
        slices.sort(key=lambda each: (each.gpu, each.gpu_instance))
        self.topology = replace(self.topology, gpus=gpus, slices=tuple(slices))

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
        """Return the UIDs of the pods whose containers use silicon of any of these GPUs and slices."""
        return tuple(uid for uid, (_, held) in self._running.items() if any(overlapping(gpu, held) for gpu in gpus))

    def _build(self) -> NodeTopology:
        return machine(self._machine_name, host=f"{self._node}-{self._generation}")
