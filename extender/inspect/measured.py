"""What is measured beside what the model says: where it errs on the machines there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from extender.inspect.inspection import Answer, BandwidthInfo
from topology.placement.topology_class import TopologyClass


class MeasuredSet(Answer):
    """One kind of set on one kind of machine."""

    machine: str
    """The kind, as the file names it."""
    models: tuple[str, ...]
    gpus: tuple[int, ...]
    """One such set."""
    measured: BandwidthInfo
    predicted: BandwidthInfo
    error_ratio: float
    """Measured over predicted less one; below 0: slower than predicted."""
    is_inside: bool
    """What was measured lies within the interval of the prediction."""
    runs: int
    message_bytes: int
    node: str
    at: str
    driver: str | None
    nccl: str | None


class MeasuredReport(Answer):
    """All figures in force, those that are farthest off first."""

    file: str | None
    """`None`: no file is configured, and all is predicted."""
    problem: str | None
    """Why the file as it is now is not in force; what it said before is."""
    refused: tuple[str, ...]
    sets: tuple[MeasuredSet, ...]


def measured_sets(classes: Iterable[TopologyClass]) -> tuple[MeasuredSet, ...]:
    """Return the figures in force on these classes of machines, each kind of machine once."""
    by_kind = {
        topology_class.kind: topology_class for topology_class in classes if topology_class.measured_sets is not None
    }
    measured = [row for kind, topology_class in by_kind.items() for row in _rows(kind, topology_class)]
    return tuple(sorted(measured, key=lambda row: (-abs(row.error_ratio), row.machine, row.gpus)))


def _rows(kind: str, topology_class: TopologyClass) -> Iterable[MeasuredSet]:
    sets = topology_class.measured_sets
    assert sets is not None
    for figure, predicted in sets:
        measured, conditions = figure.bandwidth, figure.conditions
        yield MeasuredSet(
            machine=kind,
            models=tuple(sorted({gpu.model for gpu in topology_class.node.gpus})),
            gpus=figure.gpus,
            measured=BandwidthInfo(**asdict(measured)),
            predicted=BandwidthInfo(**asdict(predicted)),
            error_ratio=measured.point / predicted.point - 1,
            is_inside=predicted.low <= measured.point <= predicted.high,
            runs=len(figure.runs_gb_per_s),
            **asdict(conditions),
        )
