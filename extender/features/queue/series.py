"""The metrics of the queue."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Final

from extender.features.queue.endings import Cause
from extender.features.queue.fate import Fate
from extender.features.queue.waiting import WaitReason
from extender.kubernetes.eviction import EvictionOutcome
from extender.telemetry.metrics import Declaration, SeriesKind, read_gauges

PREEMPTS: Final = "preempts"
"""kube-scheduler ends other pods for one whose gate is open: it has not found its planned GPUs, CPU or memory free."""
PODS: Final = Declaration(
    "gputopo_queue_pods",
    "Pods of the queue, by what became of them.",
    SeriesKind.COUNTER,
    labels=("outcome",),
    values=tuple(product(("planned", "opened", "not-opened", PREEMPTS, *Fate))),
)
GANGS: Final = Declaration(
    "gputopo_queue_gangs",
    "Gangs that were planned whole.",
    SeriesKind.COUNTER,
)
EVICTIONS: Final = Declaration(
    "gputopo_queue_evictions",
    "Evictions by cause (`half-gang`; `stranded`: the planned node is gone) and answer.",
    SeriesKind.COUNTER,
    labels=("cause", "answer"),
    values=tuple(product(Cause, EvictionOutcome)),
)
WAITING: Final = Declaration(
    "gputopo_queue_waiting_pods",
    "Pods that wait in the queue, by reason.",
    SeriesKind.READ,
    labels=("reason",),
    values=tuple(product(WaitReason)),
)
BY_NAMESPACE: Final = Declaration(
    "gputopo_queue_namespace_pods",
    "Pods that wait in the queue, by namespace: the 32 with the most, and `*` for all others.",
    SeriesKind.READ,
    labels=("pod_namespace",),
)
GAUGES: Final = read_gauges(
    {
        "queue_half_gangs": "Gangs of which some members have been bound for 60 s and others not, without a plan.",
        "queue_longest_wait_seconds": "Age of the oldest pod that waits in the queue; absent without one.",
        "queue_silence_seconds": "Time since this replica last served the queue; absent where it does not plan.",
    }
)
NAMESPACES: Final = 32
"""With a series of their own: those with the most pods that wait."""
OTHERS: Final = "*"
"""All others together; no namespace has this name."""


def by_largest(pods: Counter[str]) -> dict[str, float]:
    """Return the pods of the namespaces with the most of them, and of all others together."""
    largest: dict[str, float] = {**dict(pods.most_common(NAMESPACES))}
    others = pods.total() - sum(largest.values())
    return largest | ({OTHERS: others} if others else {})
