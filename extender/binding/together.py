"""Whether the members of a PodGroup that kube-scheduler has tried together may be bound: all of them still fit, or none is bound.

kube-scheduler decides for a whole PodGroup and then binds its pods one by one. If another pod's bind took a member's GPUs in
between, the other members would run without it. So the first bind looks at all offers of the trial:

- If every member can still have its GPUs, these are kept until the binds of the other members have come.
- If not, all binds of the trial are refused, and kube-scheduler tries the group again.
- So it is with a trial of some members, while others that were refused before have not been tried again.

Only memory is read. No safety rests on this: each bind still claims its GPUs in the ledger, or fails.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from extender.binding.outcome import BindTarget, Failure, NotBound
from extender.cluster.candidates.gangs import MemberOffer
from extender.cluster.candidates.holds import Held, Hold
from extender.cluster.state import ClusterState
from topology.bandwidth.rings import members_of
from topology.placement.verdict import Placement

_Gpu = tuple[str, int]
"""Node and position."""

NOT_TOGETHER: Final = "the pods of its PodGroup that were tried together do not all fit any more"


def refused_together(state: ClusterState, target: BindTarget, now: float, deadline: float) -> NotBound | None:
    """Return the refusal of a pod that would be bound without others of its PodGroup."""
    offer = state.memory.gangs.offered(target.uid, target.node)
    if offer is None:
        return None
    if offer.may_bind is None:
        _decide(state, target, now, deadline)
    if offer.may_bind:
        return None
    state.memory.gangs.refuse(target.uid)
    return NotBound(Failure.GANG, NOT_TOGETHER)


def _decide(state: ClusterState, target: BindTarget, now: float, deadline: float) -> None:
    offers, firm = state.memory.gangs.together(target.uid, target.node), state.holds.firm(now)
    may_bind = (
        not state.memory.gangs.others_are_to_be_tried(target.uid, now)
        and _are_apart(offers, state.memory.gangs.newest(target.uid, target.node))
        and all(_is_there(state, uid, offer, firm.get(offer.hold.node, {})) for uid, offer in offers.items())
    )
    state.memory.gangs.decide(target.uid, target.node, may_bind=may_bind)
    for uid, offer in offers.items():
        if may_bind:
            hold = offer.hold
            state.holds.put(uid, replace(hold, expires=max(hold.expires, deadline), is_firm=True))
        else:
            state.holds.release(uid)


def _is_there(state: ClusterState, uid: str, offer: MemberOffer, firm: Mapping[str, Hold]) -> bool:
    """Whether a member can have what it was offered, beside what is kept on the node, by UID."""
    view, hold = state.views.get(offer.hold.node), offer.hold
    if view is None:
        return False
    if view.claims_of(uid):
        return True
    others = 0
    for owner, kept in firm.items():
        if owner != uid:
            others |= kept.held.gpus if hold.shares else kept.held.touched
    return isinstance(view.decide_on(hold.held, offer.request, Held(others)), Placement)


def _are_apart(offers: Mapping[str, MemberOffer], newest: Mapping[str, MemberOffer]) -> bool:
    """Whether no member was offered a whole GPU of which another one was offered anything; linear in their GPUs."""
    whole, touched = defaultdict[_Gpu, set[str]](set), defaultdict[_Gpu, set[str]](set)
    for uid, offer in newest.items():
        for gpu in members_of(offer.hold.held.gpus):
            whole[offer.hold.node, gpu].add(uid)
        for gpu in members_of(offer.hold.held.touched):
            touched[offer.hold.node, gpu].add(uid)
    for uid, offer in offers.items():
        rivals = whole if offer.hold.shares else touched
        for gpu in members_of(offer.hold.held.touched):
            owners = rivals[offer.hold.node, gpu]
            if len(owners) > (uid in owners):
                return False
    return True
