"""How good decisions are, as histograms and gauges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Final

from extender.inspect.fragmentation import Fits
from extender.telemetry.metrics import Declaration, SeriesKind
from topology.placement.verdict import Reason
from topology.request.gpu_request import Communication

BANDWIDTH_RATIO: Final = Declaration(
    "gputopo_placement_bandwidth_ratio",
    "Predicted bandwidth of a pod's GPUs (two or more), relative to the best that its node has when empty.",
    SeriesKind.HISTOGRAM,
    labels=("communication",),
    values=tuple(product(Communication)),
    buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0),
)
LOSS: Final = Declaration(
    "gputopo_placement_loss",
    "What a placement costs future pods, times λ: the deduction from its score.",
    SeriesKind.HISTOGRAM,
    buckets=(0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
)
WAITING_SECONDS: Final = Declaration(
    "gputopo_waiting_seconds",
    "Time since the first refusal of the pods that wait now, per reason of their last one.",
    SeriesKind.GAUGE,
    labels=("reason", "of"),
    values=tuple(product(Reason, ("longest", "mean"))),
)
ROOM: Final = Declaration(
    "gputopo_fragmentation_pods",
    "Pods of so many GPUs, with NVLink if there are several, that would fit.",
    SeriesKind.GAUGE,
    labels=("gpus", "when"),
)
"""It has no series of sizes that no machine has room for."""
QUALITY: Final = (BANDWIDTH_RATIO, LOSS, WAITING_SECONDS, ROOM)


def waiting_figures(waits: Mapping[Reason, Sequence[float]]) -> dict[tuple[str, ...], float]:
    """Return the values of `WAITING_SECONDS` for pods that have waited so many seconds."""
    by_reason = {reason: waits.get(reason, (0.0,)) for reason in Reason}
    return {
        (reason, of): figure
        for reason, seconds in by_reason.items()
        for of, figure in (("longest", max(seconds)), ("mean", fmean(seconds)))
    }


def room_figures(fits_by_gpus: Mapping[int, Fits]) -> dict[tuple[str, ...], float]:
    """Return the values of `ROOM`."""
    return {
        (str(gpus), when): pods
        for gpus, fits in fits_by_gpus.items()
        for when, pods in (("now", fits.now), ("by_count", fits.by_count), ("empty", fits.empty))
    }
