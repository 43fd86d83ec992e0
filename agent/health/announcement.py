"""What people are told of a change of a GPU's health: what, why, what happens next and when, and what they can do.

Equal cases give equal sentences, so that they can be counted: a time is told as how long it takes, in whole minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from agent.health.links import LinkChange
from agent.health.node import HealthChange
from agent.health.policy import HealthPolicy
from agent.health.record import State
from topology.node.status import name_of


@dataclass(frozen=True, slots=True)
class Announcement:
    """One change, in words."""

    reason: str
    """One word for machines, the same for each new state."""
    note: str
    is_warning: bool


_REASONS = {
    State.HEALTHY: "GPURecovered",
    State.SUSPECT: "GPUSuspect",
    State.QUARANTINED: "GPUQuarantined",
    State.PROBATION: "GPUProbation",
    State.FAILED: "GPUFailed",
}
_TOLD = {
    State.HEALTHY: "is healthy again",
    State.SUSPECT: "is suspect, and takes pods all the same",
    State.QUARANTINED: "takes no new pods",
    State.PROBATION: "takes pods again, on probation",
    State.FAILED: "has failed, and takes no new pods",
}


def announce(change: HealthChange, index: int | None, now: float) -> Announcement:
    """Put a change into words; `index` is what `nvidia-smi` counts the GPU as, where that is known."""
    state = change.after.state
    note = f"{name_of(change.gpu, index)} {'. '.join(_sentences(change, now))}"
    return Announcement(_REASONS[state], note, is_warning=state not in {State.HEALTHY, State.PROBATION})


def announce_links(change: LinkChange, index: int | None, policy: HealthPolicy) -> Announcement:
    """Put into words that NVLinks are used no more, or again."""
    several = len(change.links) > 1
    links = f"NVLink{'s' if several else ''} {', '.join(map(str, change.links))} of {name_of(change.gpu, index)}"
    minutes = _minutes(policy.link_up)
    if change.are_used:
        note = f"{links} {'are' if several else 'is'} used again, after {minutes} without a fault"
        return Announcement("NVLinkRecovered", note, is_warning=False)
    return Announcement(
        "NVLinkDown",
        f"{links} {'are' if several else 'is'} down: rings of new pods do without, and less bandwidth is predicted. "
        f"Next: used again after {minutes} up. To do: where it stays down, drain the node and reset the GPU",
        is_warning=True,
    )


def _sentences(change: HealthChange, now: float) -> Iterator[str]:
    verdict = change.after
    yield _TOLD[verdict.state] + (f": {verdict.reason}" if verdict.reason else "")
    if verdict.next:
        yield f"Next: {verdict.next}" + ("" if verdict.until is None else f", in {_minutes(verdict.until - now)}")
    if verdict.remedy:
        yield f"To do: {verdict.remedy}"
    if not verdict.state.takes_pods:
        yield "Pods that run on it go on"


def _minutes(seconds: float) -> str:
    minutes = max(1, math.ceil(seconds / 60))
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
