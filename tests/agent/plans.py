"""Build what the device plugin decides on: listed pods, plans, and a scorer without a machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.plugin.choice.forms import Whole
from agent.plugin.pods.listed_pods import Key, ListedContainer, ListedPod, PodPlan


def listed(name: str, **containers: str) -> ListedPod:
    """Return a pod as PodResources lists it; GPUs are written as one letter each: `main="ab"`."""
    return ListedPod("ml", name, tuple(ListedContainer(key, frozenset(gpus)) for key, gpus in containers.items()))


def planned(name: str, *, exact: bool = False, uid: str = "", **containers: str) -> PodPlan:
    """Return what the ledger promises to a pod."""
    gpus = {key: frozenset(letters) for key, letters in containers.items()}
    return PodPlan("ml", name, uid or f"uid-{name}", gpus, exact)


def by_key(*plans: PodPlan) -> Mapping[Key, PodPlan]:
    """Return plans as they are looked up."""
    return {plan.key: plan for plan in plans}


class FirstCome:
    """A scorer to whom all sets are alike."""

    def best(self, pool: Iterable[str], must: Iterable[str], size: int) -> tuple[str, ...] | None:
        first = sorted(must)
        chosen = (first + sorted(set(pool) - set(first)))[:size]
        return tuple(chosen) if len(chosen) == size and len(first) <= size else None

    def ring(self, gpus: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(gpus))


WHOLE = Whole(FirstCome)
