"""Measured figures at work on one class of machines: which sets they hold for, and what they say of the others.

A set of a measured kind is as fast as it was measured. A set of another kind keeps its prediction, with one exception.
The model may hold it for no faster than a measured set of its size. Then it is not taken for faster than that one was.
Otherwise the model's own error would send pods to whatever nobody has measured. What was measured faster than predicted
raises no other set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topology.bandwidth.measured import Figure, limit_gb_per_s
from topology.bandwidth.predict import Bandwidth, Wiring, predict
from topology.node.model import NodeTopology
from topology.value.symmetry import Counts, Symmetry, lowest_first, subsets, ways

MAX_KINDS = 20_000
"""Sets of one size of which the kinds are told apart; 16 GPUs without any two alike have 12,870 of eight."""


@dataclass(frozen=True, slots=True)
class RefusedFigure:
    """A figure that cannot be, and why."""

    gpus: tuple[int, ...]
    reason: str


class MeasuredSets:
    """The figures of one class of machines."""

    def __init__(self, node: NodeTopology, wiring: Wiring, figures: Sequence[Figure]) -> None:
        """Take the figures that can be; of two about one kind of set the later in the sequence counts."""
        self._wiring = wiring
        self._symmetry = _wired_alike(node, wiring)
        self._found: dict[Counts, tuple[Figure, Bandwidth]] = {}
        refused = []
        for figure in figures:
            if why := self._wrong_with(figure, len(node)):
                refused.append(RefusedFigure(figure.gpus, why))
            else:
                self._found[self._kind(figure.mask)] = figure, predict(wiring, figure.mask)[0]
        self.refused = tuple(refused)

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[tuple[Figure, Bandwidth]]:
        """Yield each figure in force with what is predicted for its set."""
        return iter(self._found.values())

    def instead_of(self, predicted: Bandwidth, members: int) -> Bandwidth:
        """Return what a set is taken for that is predicted to reach so much."""
        if found := self._found.get(self._kind(members)):
            return found[0].bandwidth
        size = members.bit_count()
        above = [
            figure.bandwidth.point
            for figure, expected in self._found.values()
            if len(figure.gpus) == size and expected.point >= predicted.point
        ]
        most = min(above, default=predicted.high)
        return Bandwidth(min(predicted.low, most), min(predicted.point, most), predicted.high)

    def _kind(self, members: int) -> Counts:
        return self._symmetry.canonical(self._symmetry.counts(members))

    def _wrong_with(self, figure: Figure, gpus: int) -> str | None:
        if figure.gpus[-1] >= gpus:
            return f"the machine has {gpus} GPUs"
        most, limit = figure.bandwidth.high, limit_gb_per_s(self._wiring, figure.mask)
        return f"{most:.4g} GB/s, and these wires carry at most {limit:.4g}" if most > limit else None


def kinds_of_sets(node: NodeTopology, wiring: Wiring, size: int) -> list[int]:
    """Return one set of each kind of `size` GPUs, as masks: of those that are wired alike the one with the lowest places.

    None where there are more than `MAX_KINDS` sets to look through.
    """
    symmetry = _wired_alike(node, wiring)
    if ways(symmetry.sizes, size) > MAX_KINDS:
        return []
    found: dict[Counts, int] = {}
    for mask in sorted(subsets(symmetry.groups, size), key=lowest_first, reverse=True):
        found.setdefault(symmetry.canonical(symmetry.counts(mask)), mask)
    return [*found.values()]


def _wired_alike(node: NodeTopology, wiring: Wiring) -> Symmetry:
    """Return which sets of a machine have one bandwidth, whatever else a request could tell them apart by."""
    return Symmetry(wiring, [gpu.model for gpu in node.gpus])
