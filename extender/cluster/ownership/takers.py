"""Tell who shares each GPU of a node, and what is left of it.

Each container counts once: by claim, by record, or as the agent saw it.

A share is taken from the moment when it is claimed until there is proof that its containers have stopped, as a whole GPU is. What
the agent saw counts as well, under whose name it may be. So what is left is what nobody has and nobody is promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from extender.cluster.objects.parts import Parts, larger
from extender.cluster.ownership.holdings import Holding
from topology.annotations.records import Claim, Holder, Sharer


@dataclass(frozen=True, slots=True)
class Taker:
    """One container that has one GPU, or a share of it, or is promised it."""

    uid: str
    """The pod's; empty where nobody but the agent knows of it."""
    namespace: str
    name: str
    container: str
    memory_gib: int | None
    """`None`: all of it."""
    sharing_class: str | None
    """`None`: nobody knows."""


@dataclass(frozen=True, slots=True)
class Use:
    """What is taken of one GPU of which somebody has a share."""

    takers: tuple[Taker, ...]

    @property
    def memory_gib(self) -> int:
        """What the shares add up to."""
        return sum(taker.memory_gib or 0 for taker in self.takers)

    @property
    def pods(self) -> int:
        """How many have a share of it."""
        return len({(taker.namespace, taker.name, taker.uid) for taker in self.takers})

    @property
    def sharing_class(self) -> str | None:
        """The one class of all shares; `None`: nothing may be put beside them."""
        classes = {taker.sharing_class for taker in self.takers}
        is_whole = any(taker.memory_gib is None for taker in self.takers)
        return None if is_whole or len(classes) > 1 else next(iter(classes), None)

    def without(self, uids: Collection[str]) -> Use | None:
        """Return what is left of it when these pods are gone; `None`: nobody has any of it."""
        left = tuple(taker for taker in self.takers if taker.uid not in uids)
        return Use(left) if left else None


def uses_of(
    claims: Collection[Claim],
    holdings: Sequence[Holding],
    holders: Mapping[str, Holder],
    sharers: Mapping[str, tuple[Sharer, ...]],
) -> dict[str, Use]:
    """Return GPU → its use, of those that are shared, or said to be by the agent; linear in claims, pods and sharers.

    Args:
        claims: Those that are not proven dead.
        holdings: Of the live pods that are bound to the node.
        holders: GPU → whom the agent saw with it.
        sharers: GPU → all whom the agent saw with parts of it.

    """
    shared = {claim.gpu for claim in claims if claim.memory_gib is not None} | sharers.keys()
    for held in holdings:
        if held.pod.shares:
            shared |= held.gpus.keys() | (held.pod.placed or {}).keys()
    if not shared:
        return {}
    on: dict[str, dict[tuple[str, str], Taker]] = {gpu: {} for gpu in sorted(shared)}
    for claim in claims:
        if claim.gpu in shared:
            on[claim.gpu][claim.uid, claim.container] = Taker(
                claim.uid, claim.namespace, claim.name, claim.container, claim.memory_gib, claim.sharing_class
            )
    for held in holdings:
        for parts in (held.gpus, held.pod.placed or {}):
            _add(on, held, parts)
    alive = {held.pod.key: held for held in holdings}
    for gpu in shared & holders.keys() - sharers.keys():
        who, owner = holders[gpu], alive.get((holders[gpu].namespace, holders[gpu].name))
        uid = owner.pod.uid if owner else ""
        on[gpu][uid or f"{who.namespace}/{who.name}", who.container] = Taker(
            uid, who.namespace, who.name, who.container, None, None
        )
    for gpu, seen in sharers.items():
        for (key, container), gib in _seen(seen).items():
            _add_seen(on[gpu], key, container, gib, alive.get(key))
    return {gpu: Use(tuple(takers[key] for key in sorted(takers))) for gpu, takers in on.items() if takers}


def _add(on: dict[str, dict[tuple[str, str], Taker]], held: Holding, parts: Parts) -> None:
    pod = held.pod
    for gpu in on.keys() & parts.keys():
        for part in parts[gpu]:
            taker, gib = on[gpu].get((pod.uid, part.container)), part.memory_gib
            if taker is not None:
                gib = larger(taker.memory_gib, gib)
            on[gpu][pod.uid, part.container] = Taker(pod.uid, *pod.key, part.container, gib, held.sharing_class)


def _seen(sharers: Iterable[Sharer]) -> Counter[tuple[tuple[str, str], str]]:
    parts_seen = Counter[tuple[tuple[str, str], str]]()
    for who in sharers:
        parts_seen[(who.namespace, who.name), who.container] += who.parts
    return parts_seen


def _add_seen(
    takers: dict[tuple[str, str], Taker], key: tuple[str, str], container: str, gib: int, alive: Holding | None
) -> None:
    """Count what was seen under a name, as far as it is more than what is known of all pods of that name."""
    namesakes = [
        taker for taker in takers.values() if (taker.namespace, taker.name, taker.container) == (*key, container)
    ]
    if any(taker.memory_gib is None for taker in namesakes):
        return
    if alive is not None and not alive.pod.shares and alive.pod.gpus is not None:
        # A device plugin of somebody else's gave out parts of what the pod asked for as a whole.
        takers[alive.pod.uid, container] = Taker(alive.pod.uid, *key, container, None, "")
        return
    if (more := gib - sum(taker.memory_gib or 0 for taker in namesakes)) > 0:
        uid, sharing_class = (alive.pod.uid, alive.sharing_class) if alive else ("", None)
        owner = uid or "/".join(key), container
        mine = takers.get(owner)
        more += mine.memory_gib or 0 if mine else 0
        takers[owner] = Taker(uid, *key, container, more, namesakes[0].sharing_class if namesakes else sharing_class)
