"""What each pod of a node holds alone, and so gives back when it is gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.masks import mask_of
from extender.cluster.node_view import NodeView, Owner
from extender.cluster.ownership.standing import Standing
from topology.placement.shares import HeldShare


def held_alone(view: NodeView) -> dict[Owner, Held]:
    """Return what nobody else keeps from being free than the owner, and all shares that add up; linear as `NodeView.taken`.

    A GPU that pods share is held by none of them: it is free when all of their shares are gone.
    """
    names = _names_of_gone(view)
    taken, across = (_by_pod(kept, names) for kept in view.taken_and_across())
    once = several = 0
    for gpus in taken.values():
        several |= once & gpus
        once |= gpus
    shares, shared = _shares(view, across), mask_of(view.devices, view.uses)
    return {
        # A slice keeps its GPU, and that is never free.
        owner: Held(gpus & ~(several | shared | across.get(owner, 0) & ~view.fit), tuple(shares.get(owner, ())))
        for owner, gpus in taken.items()
    }


@dataclass(slots=True)
class Holders:
    """What the pods of nodes hold alone, computed once for many pods of one node that are looked at one after the other."""

    _view: NodeView | None = None
    _held: Mapping[Owner, Held] = field(default_factory=dict)

    def of(self, view: NodeView) -> Mapping[Owner, Held]:
        """Return what each pod of a node holds alone."""
        if view is not self._view:
            self._view, self._held = view, held_alone(view)
        return self._held


def given_back(view: NodeView, held: Held) -> Held:
    """Return what others may have of it: nothing that is sick, or kept by DRA."""
    fit = view.fit
    return Held(held.gpus & fit, tuple(share for share in held.shares if fit >> share[0] & 1))


def about_to_be_whole(view: NodeView, gpus: int) -> Held:
    """Return those of these GPUs that the last share has left, and that the node's agent still calls shared."""
    emptied = sum(1 << gpu.position for gpu in view.shape.shares.shared if gpu.sharing_class is None)
    return Held(gpus & emptied) if emptied else NOTHING


def _names_of_gone(view: NodeView) -> dict[Owner, str]:
    """Return namespace and name → UID of the pods that are gone, and have claims of which it is not proven that they are dead."""
    names = dict[Owner, set[str]]()
    for claim, standing in view.claims:
        if standing in (Standing.GONE, Standing.UNSEEN):
            names.setdefault((claim.namespace, claim.name), set()).add(claim.uid)
    return {name: uid for name, (uid, *others) in names.items() if not others}


def _by_pod(taken: Mapping[Owner, int], names: Mapping[Owner, str]) -> Mapping[Owner, int]:
    """Return the same by UID where only a name is known of an owner, and one pod of that name has claims."""
    if not names:
        return taken
    by_pod = dict[Owner, int]()
    for owner, gpus in taken.items():
        known = names.get(owner, owner)
        by_pod[known] = by_pod.get(known, 0) | gpus
    return by_pod


def _shares(view: NodeView, across: Mapping[Owner, int]) -> Mapping[Owner, list[HeldShare]]:
    """Return the shares on GPUs that only shares of one class keep from being free."""
    shares, excluded = defaultdict[Owner, list[HeldShare]](list), 0
    if not view.uses:
        return shares
    for gpus in across.values():
        excluded |= gpus
    positions = {uuid: position for position, uuid in enumerate(view.uuids) if not excluded >> position & 1}
    for gpu in positions.keys() & view.uses.keys():
        takers, sharing_class = view.uses[gpu].takers, view.uses[gpu].sharing_class
        if sharing_class is None:
            continue
        for taker in takers:
            owner = taker.uid or (taker.namespace, taker.name)
            shares[owner].append((positions[gpu], taker.memory_gib or 0, sharing_class))
    for of_owner in shares.values():
        of_owner.sort()
    return shares
