"""Which pod the kubelet is asking for: exactly, or not at all.

Neither GetPreferredAllocation nor Allocate names the pod. But a List made from inside the call shows the pod under
admission with a container still empty. Pods after it are not listed yet, and the ledger says how many GPUs each container
is to get.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agent.plugin.pods.listed_pods import Key, ListedPod, PodPlan


@dataclass(frozen=True, slots=True)
class Planned:
    """A container of a pod with claims in the ledger."""

    plan: PodPlan
    container: str | None
    """`None` for one whose GPUs the ledger does not tell apart: an init container, which is not listed either."""


@dataclass(frozen=True, slots=True)
class Unplanned:
    """A pod without claims: it came around the extender."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be told which of these it is, or nobody could be asked."""

    why: str
    plans: tuple[PodPlan, ...] = ()


Identity: TypeAlias = Planned | Unplanned | Unknown


def identify(
    pods: Sequence[ListedPod], newest: Collection[Key], plans: Mapping[Key, PodPlan], size: int
) -> Planned | Unplanned | Unknown:
    """Return who asks for `size` devices; `pods` was listed inside the call, `newest` is what `PodArrivals` makes of it."""
    waiting = [(pod.key, match) for pod in pods if (match := _waits(pod, plans.get(pod.key), size))]
    fresh = [match for key, match in waiting if key in newest]
    if len(fresh) == 1:
        return fresh[0]
    if waiting:
        why = "several pods wait for as many GPUs" if fresh else "the pod that waits was listed long ago"
        return Unknown(why, tuple(match.plan for _, match in waiting))
    return Unplanned()


def _waits(pod: ListedPod, plan: PodPlan | None, size: int) -> Planned | None:
    """Return the container of this pod that may be asking for `size` GPUs."""
    planned = [item for item in pod.containers if plan and item.name in plan.containers]
    empty = [item.name for item in planned if not item.gpus]
    if plan is None or (planned and not empty):
        return None
    if empty and plan.size_of(empty[0]) == size:
        return Planned(plan, empty[0])
    # Init containers ask before the others, or before those that are not sidecars, for GPUs that are all the pod's.
    return Planned(plan, None) if size <= plan.size else None
