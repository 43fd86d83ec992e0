"""What the container gets where no scheduler imposes GPUs: the kubelet offers the free ones, and the device plugin chooses.

The kubelet passes the free GPUs in random order, since it ranges over a Go map. NVIDIA's plugin takes the first of equal sets,
so what it hands out depends on that order. All policies whose GPUs the plugin chooses use this class, the product in mode
`observe` too. The orders follow from the seed of the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random

from benchmarks.placement.cluster import ServerState
from topology.node.model import NodeTopology
from topology.placement.nvidia_best_effort import Outcome, Splits, any_of, outcomes


class DevicePlugin(ABC):
    """The device plugin of every node, behind a kubelet."""

    def __init__(self, random: Random) -> None:
        """Take a seed for the orders from what `random` would draw next, and leave `random` as it is."""
        copied = Random()  # noqa: S311 - a simulation
        copied.setstate(random.getstate())
        self._orders = Random(copied.getrandbits(64))  # noqa: S311

    def hand_out(self, node: ServerState, gpus: int) -> tuple[int, ...]:
        """Return the GPUs that a container gets; each call is another order."""
        free = [*node.free_positions]
        self._orders.shuffle(free)
        return self.choose(node.server.topology, free, gpus)

    @abstractmethod
    def choose(self, node: NodeTopology, free: list[int], gpus: int) -> tuple[int, ...]:
        """Return the GPUs that the container gets when the kubelet offers the free ones in this order."""

    @abstractmethod
    def outcomes(self, node: NodeTopology, free: int, gpus: int) -> tuple[Outcome, ...]:
        """Return all that a container may get of the free GPUs (mask), with its chance."""


class NvidiaPlugin(DevicePlugin):
    """NVIDIA's: `topology.placement.nvidia_best_effort`."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._splits: dict[tuple[NodeTopology, int], Splits] = {}
        self._outcomes: dict[tuple[NodeTopology, int, int], tuple[Outcome, ...]] = {}

    def choose(self, node: NodeTopology, free: list[int], gpus: int) -> tuple[int, ...]:
        """Return the first of the best sets."""
        return self._splits.setdefault((node, gpus), Splits(node, gpus)).choose(free)

    def outcomes(self, node: NodeTopology, free: int, gpus: int) -> tuple[Outcome, ...]:
        """Return what NVIDIA's plugin may hand out."""
        key = node, free, gpus
        if key not in self._outcomes:
            self._outcomes[key] = outcomes(node, free, gpus)
        return self._outcomes[key]


class PlainPlugin(DevicePlugin):
    """One that states no preference: the kubelet takes the first GPUs of its own order."""

    def choose(self, node: NodeTopology, free: list[int], gpus: int) -> tuple[int, ...]:
        """Return the first GPUs."""
        return tuple(free[:gpus])

    def outcomes(self, node: NodeTopology, free: int, gpus: int) -> tuple[Outcome, ...]:
        """Return every set, each as likely."""
        return any_of(free, gpus)
