"""Figures for tests: what the feature has observed."""

from __future__ import annotations

from extender.features.quality.series import (
    BANDWIDTH_RATIO,
    LOSS,
    ROOM,
    WAITING_SECONDS,
    room_figures,
    waiting_figures,
)
from extender.inspect.fragmentation import Fits
from extender.telemetry.metrics import Metrics
from topology.placement.verdict import Reason
from topology.request.gpu_request import Communication


def show(metrics: Metrics) -> None:
    """Count a placement, a pod that waits, and the room for others."""
    metrics.observe(BANDWIDTH_RATIO, 0.7, Communication.HEAVY)
    metrics.observe(LOSS, 0.5)
    metrics.show(WAITING_SECONDS, waiting_figures({Reason.AFFINITY: [30.0]}))
    metrics.show(ROOM, room_figures({1: Fits(3, 3, 8), 2: Fits(1, 1, 4)}))
