"""What is said and counted of preemptions."""

from __future__ import annotations

from itertools import product
from typing import Final

from extender.features.dra.preempting import DevicePreemption
from extender.kubernetes.events import Event, PodName
from extender.kubernetes.eviction import EvictionOutcome
from extender.planning.promises import PromiseEnd
from extender.telemetry.metrics import Declaration, SeriesKind

BEGUN: Final = "begun"
PREEMPTIONS: Final = Declaration(
    "gputopo_dra_preemptions",
    "Preemptions for pods with ResourceClaims: `begun`, and what became of them.",
    SeriesKind.COUNTER,
    labels=("outcome",),
    values=tuple(product((BEGUN, *PromiseEnd))),
)
VICTIMS: Final = Declaration(
    "gputopo_dra_victims",
    "Evictions of pods for others with ResourceClaims, by answer.",
    SeriesKind.COUNTER,
    labels=("answer",),
    values=tuple(product(EvictionOutcome)),
)
PREEMPTED: Final = "Preempted"
"""As kube-scheduler has it."""
WAITS: Final = "GPUPodWaitsForVictims"
NOT_PREEMPTED: Final = "GPUPodPreemptsNone"
NAMED: Final = 3
"""Nodes, in a sentence."""
_WHY: Final = {
    PromiseEnd.DEADLINE: "its victims have not ended in time",
    PromiseEnd.CHANGED: "it has changed, or its place or a victim has",
    PromiseEnd.REFUSED: "a victim may not be evicted",
    PromiseEnd.STOOD_BY: "another replica of the extender plans now",
}
"""Of preemptions that the waiting pod outlives without a place."""


def waits(preemption: DevicePreemption) -> Event:
    """Say for whom a pod waits, or the first of a gang."""
    return Event(_waiting(preemption), WAITS, waits_in_words(preemption), "Normal")


def waits_in_words(preemption: DevicePreemption) -> str:
    """Say how many pods end, and where."""
    count = len(preemption.gone)
    pods = "1 victim" if count == 1 else f"{count} victims"
    nodes = preemption.victims.nodes
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return f"waits for {pods} on {', '.join(nodes[:NAMED])}{more} to end"


def preempted(victim: PodName, node: str | None, preemption: DevicePreemption) -> Event:
    """Say for which pod a pod ends; that of another namespace has its UID only, as with kube-scheduler."""
    waiting = _waiting(preemption)
    is_near = waiting.namespace == victim.namespace
    pod = f"{waiting.namespace}/{waiting.name}" if is_near else f"pod {waiting.uid}"
    return Event(victim, PREEMPTED, f"Preempted by {pod} on node {node}", "Normal")


def preempts_none(pod: PodName, why: str) -> Event:
    """Say why no pod ends for a pod, though pods of lower priority have what it needs."""
    return Event(pod, NOT_PREEMPTED, f"no pod is preempted for it: {why}", "Normal")


def given_up(preemption: DevicePreemption, end: PromiseEnd) -> Event | None:
    """Say why a preemption has ended in vain; `None` where it does not matter to the pod."""
    why = _WHY.get(end)
    return preempts_none(_waiting(preemption), why) if why else None


def _waiting(preemption: DevicePreemption) -> PodName:
    return PodName.of_metadata(preemption.targets[0].pod.metadata)
