"""The metrics of the moves."""

from __future__ import annotations

from itertools import product
from typing import Final

from extender.kubernetes.eviction import EvictionOutcome
from extender.planning.promises import PromiseEnd
from extender.telemetry.metrics import Declaration, SeriesKind, read_gauges

BEGUN: Final = "begun"
PLANS: Final = Declaration(
    "gputopo_move_plans",
    "Plans to make room for a pod: `begun`, and what became of them.",
    SeriesKind.COUNTER,
    labels=("outcome",),
    values=tuple(product((BEGUN, *PromiseEnd))),
)
MOVES: Final = Declaration(
    "gputopo_moves",
    "Evictions that make room for other pods, by answer.",
    SeriesKind.COUNTER,
    labels=("answer",),
    values=tuple(product(EvictionOutcome)),
)
COST: Final = Declaration(
    "gputopo_moves_cost_gpu_seconds",
    "GPU-seconds that moved pods lose, as planned.",
    SeriesKind.COUNTER,
)
GAIN: Final = Declaration(
    "gputopo_moves_gain_gpu_seconds",
    "GPU-seconds for which pods that got room would have waited, as expected.",
    SeriesKind.COUNTER,
)
GAUGES: Final = read_gauges({"move_plans_under_way": "Plans to make room that are being carried out."})
