"""How good decisions are, as histograms and gauges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Final

from extender.inspect.fragmentation import Fits
from extender.telemetry.metrics import Declaration, Kind
from topology.placement.verdict import Reason
from topology.request.gpu_request import Communication

BANDWIDTH_RATIO: Final = Declaration(
    "gputopo_placement_bandwidth_ratio",
    "Predicted bandwidth of the GPUs that a pod got, two or more, over that of the best so many of the empty machine.",
    Kind.HISTOGRAM,
    labels=("communication",),
    values=tuple(product(Communication)),
    buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0),
)
LOSS: Final = Declaration(
    "gputopo_placement_loss",
    "What the pods to come lose by a placement, times λ: what was taken off its score.",
    Kind.HISTOGRAM,
    buckets=(0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
)
WAITING_SECONDS: Final = Declaration(
    "gputopo_waiting_seconds",
    "How long the pods have waited since their first refusal that wait now, by each reason of their last one.",
    Kind.GAUGE,
    labels=("reason", "of"),
    values=tuple(product(Reason, ("longest", "mean"))),
)
ROOM: Final = Declaration(
    "gputopo_fragmentation_pods",
    "Pods of so many GPUs, joined by NVLink, for which there is room: now, by the count of free GPUs, if all were free.",
    Kind.GAUGE,
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
