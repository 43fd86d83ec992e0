"""What kinds of sets reached on kinds of machines when somebody measured them, to stand in the place of predictions.

A kind of machine is told by its GPUs' models and by what bandwidth depends on: wires, PCIe, processors. Identity, drivers, memory
and NICs make no difference. Its sets are named by places; a figure holds for every set that is wired like the one it names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from topology.bandwidth.predict import Bandwidth, Wiring
from topology.bandwidth.rings import members_of
from topology.node.model import NodeTopology

LIMIT_TOLERANCE = 1.25
"""Over NCCL's constants, which are as far below the signalling rate: 20.6 of 25 GB/s on an H100's link."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which a figure was measured."""

    node: str
    at: str
    """Time, `2026-11-23T15:04:05Z`."""
    message_bytes: int
    driver: str | None = None
    nccl: str | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """All-reduce bus bandwidth of one kind of set, as nccl-tests counts it."""

    gpus: tuple[int, ...]
    """Places of one such set on the machine, rising from 0."""
    runs_gb_per_s: tuple[float, ...]
    """One value for each run, in any order."""
    conditions: Conditions

    @property
    def mask(self) -> int:
        """The set as a bit mask over positions."""
        return sum(1 << gpu for gpu in self.gpus)

    @property
    def bandwidth(self) -> Bandwidth:
        """What stands in the place of the prediction.

        >>> Figure((0, 1), (42.0, 40.0, 41.0), Conditions("n1", "2026-11-23T15:04:05Z", 2**30)).bandwidth.point
        41.0
        """
        runs = self.runs_gb_per_s
        return Bandwidth(min(runs), median(runs), max(runs), measured=True)


@dataclass(frozen=True, slots=True)
class MeasuredMachine:
    """All that was measured on one kind of machine."""

    description: str
    """For people: how many GPUs of which model."""
    figures: tuple[Figure, ...]


Measurements = Mapping[str, MeasuredMachine]
"""By kind of machine, as `kind_of` names it."""


def kind_of(node: NodeTopology) -> str:
    """Return 16 hex digits that are the same for machines whose bandwidths are the same, place by place."""
    gpus = [
        (gpu.model, gpu.compute_capability, gpu.switch_links, gpu.pcie_generation, gpu.pcie_width) for gpu in node.gpus
    ]
    pairs = [(link.nvlinks, node.path(*pair).name, link.p2p) for pair, link in node.pairs.items()]
    said = json.dumps([gpus, pairs, node.cpu_vendor, node.cpu_model], separators=(",", ":"))
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def merged(old: Measurements, new: Measurements) -> dict[str, MeasuredMachine]:
    """Return all figures of both; a new one about a set takes the place of the old one."""
    found = dict(old)
    for kind, machine in new.items():
        by_set = {figure.gpus: figure for figure in found[kind].figures} if kind in found else {}
        by_set |= {figure.gpus: figure for figure in machine.figures}
        found[kind] = MeasuredMachine(machine.description, tuple(by_set[gpus] for gpus in sorted(by_set)))
    return found


def limit_gb_per_s(wiring: Wiring, members: int) -> float:
    """Return what no run on these GPUs can exceed: the wires that lead out of the one that has the fewest.

    A switch that reduces sends each GPU n+1 parts where a ring's bus bandwidth counts 2(n-1).
    """
    vertices = members_of(members)
    in_switch = 2 * (len(vertices) - 1) / (len(vertices) + 1)
    return LIMIT_TOLERANCE * min(
        wiring.rate[i] * sum(wiring.direct[i][j] for j in vertices)
        + wiring.rate[i] * wiring.switch[i] * max(in_switch, 1.0)
        + max(alone.high for j in vertices if (alone := wiring.alone[i][j]) is not None)
        for i in vertices
    )
