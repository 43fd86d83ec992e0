"""Whether the members of a PodGroup that kube-scheduler has tried together may be bound: all of them still fit, or none is bound.

kube-scheduler decides for a whole PodGroup and then binds its pods one by one. If another pod's bind took a member's GPUs in
between, the other members would run without it. So the first bind looks at all offers of the trial:

- If every member can still have its GPUs, these are kept until the binds of the other members have come.
- If not, all binds of the trial are refused, and kube-scheduler tries the group again.

Only memory is read. No safety rests on this: each bind still claims its GPUs in the ledger, or fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from extender.binding.outcome import BindTarget, Failure, NotBound
from extender.cluster.candidates.gangs import Offer
from extender.cluster.candidates.holds import NOTHING, Hold
from extender.cluster.state import ClusterState
from topology.placement.verdict import Placement

NOT_TOGETHER: Final = "the pods of its PodGroup that were tried together do not all fit any more"


def refused_together(state: ClusterState, target: BindTarget, now: float, deadline: float) -> NotBound | None:
    """Return the refusal of a pod that would be bound without others of its PodGroup."""
    offer = state.gangs.offered(target.uid, target.node)
    if offer is None:
        return None
    if offer.may_bind is None:
        _decide(state, target, now, deadline)
    return None if offer.may_bind else NotBound(Failure.GANG, NOT_TOGETHER)


def _decide(state: ClusterState, target: BindTarget, now: float, deadline: float) -> None:
    offers = state.gangs.together(target.uid, target.node)
    may_bind = _are_apart(offers, state.gangs.newest(target.uid, target.node)) and all(
        _is_there(state, uid, offer, now) for uid, offer in offers.items()
    )
    state.gangs.decide(target.uid, target.node, may_bind=may_bind)
    for uid, offer in offers.items():
        if may_bind:
            hold = offer.hold
            state.holds.put(uid, replace(hold, expires=max(hold.expires, deadline), is_firm=True))
        else:
            state.holds.release(uid)


def _is_there(state: ClusterState, uid: str, offer: Offer, now: float) -> bool:
    """Whether a member can have what it was offered."""
    view, hold = state.views.get(offer.hold.node), offer.hold
    if view is None:
        return False
    if view.claims_of(uid):
        return True
    kept = state.holds.kept(uid, now).get(hold.node, NOTHING)
    left = hold.gpus & ~(kept.gpus if hold.shares else kept.touched)
    return isinstance(view.decide_on(left, offer.request), Placement)


def _are_apart(offers: Mapping[str, Offer], newest: Mapping[str, Offer]) -> bool:
    """Whether no member was offered a whole GPU of which another one was offered anything."""
    on_node: dict[str, list[tuple[str, Hold]]] = {}
    for uid, offer in newest.items():
        on_node.setdefault(offer.hold.node, []).append((uid, offer.hold))
    return not any(
        uid != rival and (offer.hold.held.gpus & hold.held.touched or offer.hold.held.touched & hold.held.gpus)
        for uid, offer in offers.items()
        for rival, hold in on_node.get(offer.hold.node, ())
    )
