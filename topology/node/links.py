"""How two devices of one node are joined, in the words of `nvidia-smi topo -m`.

Kind and count are kept apart. A pair has a number of NVLinks *and* a PCIe path, and the matrix cell shows only one of
them.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class PciePath(IntEnum):
    """The PCIe relation of two devices, nearest first (`nvidia-smi topo -m` legend; NVML's common ancestor).

    `INTERNAL` (two GPUs of one board) is printed as `PIX`, as nvidia-smi does.
    """

    INTERNAL = 0
    PIX = 1
    PXB = 2
    PHB = 3
    NODE = 4
    SYS = 5

    @property
    def label(self) -> str:
        """The matrix cell."""
        return "PIX" if self is PciePath.INTERNAL else self.name


class Affinity(StrEnum):
    """How near the farthest hop of a GPU set's best ring is; the words of the pod annotations, plus `system`."""

    NVLINK = "nvlink"
    PCIE_SWITCH = "pcie-switch"
    NUMA_NODE = "numa-node"
    SYSTEM = "system"

    @property
    def distance(self) -> int:
        """0 for the nearest; a requirement is met by every affinity of at most its own distance."""
        return _DISTANCE[self]

    def meets(self, required: Affinity) -> bool:
        """Whether a set with this affinity satisfies `required`.

        >>> Affinity.NVLINK.meets(Affinity.NUMA_NODE), Affinity.SYSTEM.meets(Affinity.NUMA_NODE)
        (True, False)
        """
        return self.distance <= required.distance


_DISTANCE = {affinity: distance for distance, affinity in enumerate(Affinity)}

PATH_AFFINITY = {
    PciePath.INTERNAL: Affinity.PCIE_SWITCH,
    PciePath.PIX: Affinity.PCIE_SWITCH,
    PciePath.PXB: Affinity.PCIE_SWITCH,
    PciePath.PHB: Affinity.NUMA_NODE,
    PciePath.NODE: Affinity.NUMA_NODE,
    PciePath.SYS: Affinity.SYSTEM,
}
"""What a hop over PCIe alone counts as."""
