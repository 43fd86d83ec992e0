"""Decides which pods have to go: those of half gangs, and those that are pinned to a node that is gone. No I/O.

Of a half gang the members go first that were sent to a node and are not bound there. Their successors may find a place near the
others. Its bound members go only if all others wait in the queue.

Only pods that the queue has sent to their nodes are ended, and only those that a controller creates again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod, owner_of, priority_of
from extender.features.queue.half_gangs import PATIENCE_SECONDS, HalfGang

WITNESSES: Final = 16
"""Members of one gang that are read before each eviction, at most."""


class Cause(StrEnum):
    """Why a pod has to go."""

    HALF_GANG = "half-gang"
    STRANDED = "stranded"


@dataclass(frozen=True, slots=True)
class Ending:
    """A pod that has to go."""

    pod: GpuPod
    cause: Cause
    why: str

    @property
    def obstacle(self) -> str | None:
        """Why the pod is only reported; `None`: it may be evicted."""
        if not owner_of(self.pod.pod):
            return "no controller creates it again; delete it"
        return None if self.pod.directed_to else "the queue has not started it; delete it"


def of_stranded(pod: GpuPod) -> Ending:
    """Return that of a pod whose node is gone."""
    return Ending(pod, Cause.STRANDED, f"it is pinned to {pod.pinned_to}, which does not exist any more")


def of_gang(gang: HalfGang) -> list[Ending]:
    """Return those of the members of a half gang that have to go now."""
    counts = f"only {len(gang.bound)} of the {gang.needed} pods that its gang needs have been bound"
    why = f"{counts} for {PATIENCE_SECONDS:.0f} s, and the others have no plan"
    sent = [pod for pod in gang.unbound if not pod.is_gated]
    return [Ending(pod, Cause.HALF_GANG, why) for pod in sent or gang.bound]


def witnesses(gang: HalfGang) -> tuple[GpuPod, ...]:
    """Return members that have to be unbound still: with them the gang is half, whatever has become of its other members."""
    missing = gang.needed - len(gang.bound)
    return gang.unbound[: min(max(1, len(gang.unbound) - missing + 1), WITNESSES)]


def priority(gang: HalfGang) -> int:
    """Return the lowest priority of its bound members: gangs of low priority make room for others first."""
    return min(priority_of(pod.pod) for pod in gang.bound)
