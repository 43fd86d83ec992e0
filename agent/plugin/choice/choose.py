"""Which GPUs a container gets: the promised ones, else as good as can be had without touching any promise.

Both questions of the kubelet are decided here: what it should take (`choose`), and whether what it took will do (`accept`).
Whatever the answer, it is about exactly the GPUs that the kubelet accounts for.

What the kubelet offers is not always free. When it frees dead pods' devices while one is being allocated, as each List
makes it do, it forgets the latter. Then it offers that device again (Kubernetes 1.36, `UpdateAllocatedDevices`). Its own
list knows better: what a container holds there (`held`) is given to nobody, and neither is anything else of its silicon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from agent.plugin.pods.identify import Identity, Planned, Unknown
from agent.plugin.pods.listed_pods import Key, PodPlan, promised_to_others, told_by
from topology.node.silicon import NO_SLICES, Excluded, Silicon


class Basis(StrEnum):
    """What an answer rests on."""

    PLANNED = "planned"
    """The ledger."""
    ADOPTED = "adopted"
    """The planned GPUs could not be had, and the pod takes others."""
    UNPLANNED = "unplanned"
    """The pod has no claims, or it could not be told which pod it is."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What the kubelet asks for one container."""

    available: frozenset[str]
    must_include: frozenset[str]
    """Already its pod's, from an init container."""
    size: int


@dataclass(frozen=True, slots=True)
class Grant:
    """The container gets these GPUs."""

    gpus: tuple[str, ...]
    """In ring order, as the container is told; what the kubelet should take has no order."""
    basis: Basis
    compute_percent: int | None = None
    """A ceiling on what a share computes."""


@dataclass(frozen=True, slots=True)
class AllocationRefusal:
    """The pod is turned away for good; only its controller makes another one."""

    reason: str


class ScorerPort(Protocol):
    """Knows the node's wires."""

    def best(self, pool: Collection[str], must: Collection[str], size: int) -> tuple[str, ...] | None:
        """Return the best set with `must` in it, in ring order; `None` when the pool is too small."""
        ...

    def ring(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Return these GPUs in ring order."""
        ...


def choose(
    ask: Ask,
    held: frozenset[str],
    who: Identity,
    plans: Mapping[Key, PodPlan],
    scorer: ScorerPort,
    silicon: Silicon = NO_SLICES,
) -> Grant | AllocationRefusal:
    """Return `size` GPUs out of the available ones that nobody holds, `must_include` among them, or a refusal."""
    silicon = told_by(silicon, plans.values())
    ask = replace(ask, available=_left(ask.available, silicon.excluded_by(held - ask.must_include)))
    if isinstance(who, Planned):
        for allowed in _wanted_sets(ask, who):
            chosen = _out_of(allowed & ask.available, ask, scorer)
            if chosen is not None:
                return Grant(chosen, Basis.PLANNED)
    if refusal := must_not_adopt(
        who, f"{_missing(promised_to(who) - ask.available)} promised to the pod cannot be had"
    ):
        return refusal
    left = _left(ask.available, silicon.excluded_by(promised_to_others(plans.values(), _key(who))))
    chosen = _out_of(left, ask, scorer)
    if chosen is None:
        return AllocationRefusal(f"only {len(left)} of {len(ask.available)} GPUs are promised to no other pod")
    return Grant(chosen, beyond_plan(who))


def accept(
    gpus: frozenset[str],
    held: frozenset[str],
    who: Identity,
    plans: Mapping[Key, PodPlan],
    scorer: ScorerPort,
    silicon: Silicon = NO_SLICES,
) -> Grant | AllocationRefusal:
    """Judge the GPUs that the kubelet took."""
    silicon = told_by(silicon, plans.values())
    if taken := gpus & held:
        return AllocationRefusal(f"the kubelet took {_named(taken)}, which it lists with another container")
    if taken := gpus - _left(gpus, silicon.excluded_by(held)):
        return AllocationRefusal(
            f"the kubelet took {_named(taken)}, and a container has another device of the same GPU"
        )
    order = scorer.ring(gpus)
    if isinstance(who, Planned) and gpus <= who.plan.gpus:
        return Grant(order, Basis.PLANNED)
    if refusal := must_not_adopt(who, f"the kubelet took {_named(gpus)}, promised are {_named(promised_to(who))}"):
        return refusal
    if taken := gpus - _left(gpus, silicon.excluded_by(promised_to_others(plans.values(), _key(who)))):
        return AllocationRefusal(f"the kubelet took {_named(taken)}, promised to another pod")
    return Grant(order, beyond_plan(who))


def must_not_adopt(who: Identity, reason: str) -> AllocationRefusal | None:
    """Refuse other devices than the planned ones to a pod that takes no others, or may be such a pod."""
    if isinstance(who, Planned) and who.plan.exact:
        return AllocationRefusal(reason)
    if isinstance(who, Unknown) and any(plan.exact for plan in who.plans):
        return AllocationRefusal(f"{who.why}, and one of them takes its own GPUs only")
    return None


def promised_to(who: Identity) -> frozenset[str]:
    """Return the GPUs of the pod's plan, if it has one."""
    return who.plan.gpus if isinstance(who, Planned) else frozenset()


def beyond_plan(who: Identity) -> Basis:
    """Return what an answer rests on that gives other devices than the planned ones."""
    return Basis.ADOPTED if isinstance(who, Planned) else Basis.UNPLANNED


def _left(devices: frozenset[str], excluded: Excluded) -> frozenset[str]:
    return frozenset(device for device in devices if device not in excluded)


def _out_of(pool: frozenset[str], ask: Ask, scorer: ScorerPort) -> tuple[str, ...] | None:
    """Return the best set of the pool; where there is only one, nobody has to search."""
    whole = pool | ask.must_include
    return tuple(sorted(whole)) if len(whole) == ask.size else scorer.best(pool, ask.must_include, ask.size)


def _wanted_sets(ask: Ask, who: Planned) -> list[frozenset[str]]:
    """List what the plan allows, the container's own GPUs first; all of it has to include what the pod holds already."""
    own = who.plan.containers[who.container] if who.container else frozenset[str]()
    return [gpus for gpus in (own, who.plan.gpus) if ask.must_include <= gpus]


def _key(who: Identity) -> Key | None:
    return who.plan.key if isinstance(who, Planned) else None


def _missing(gpus: frozenset[str]) -> str:
    return f"{len(gpus)} of the GPUs" if len(gpus) != 1 else f"GPU {_named(gpus)}"


def _named(gpus: Iterable[str]) -> str:
    return ", ".join(sorted(gpus))
