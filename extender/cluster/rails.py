"""Choose the rails that are best for a pod of a group, node by node.

Those are where most of its group are, and where no other group is.

Both only tell GPUs apart that are equal otherwise. Pods on the way count where they will probably be, as for groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from extender.cluster.node_view import NodeView
from extender.cluster.ownership.standing import Standing
from extender.cluster.state import ClusterState
from topology.bandwidth.rings import members_of
from topology.placement.rails import NO_RAILS, Rails
from topology.placement.topology_class import TopologyClass


@dataclass(frozen=True, slots=True)
class _Member:
    """One pod of the group that is placed, or probably will be."""

    node: str
    topology_class: TopologyClass
    rails: int
    """GPUs of its rails, as a mask over positions."""


class RailsOfGroup:
    """What the rails of nodes are to one pod; for a pod without a group nothing is looked up."""

    def __init__(self, state: ClusterState, uid: str, now: float) -> None:
        self._state = state
        self._uid = uid
        self._now = now
        self._peers = state.indexes.groups.peers(uid)
        self._preferred: dict[tuple[TopologyClass, str | None], int] = {}

    def on(self, view: NodeView) -> Rails:
        """Return what they are on one node; the first time that is linear in the group's pods."""
        topology_class = view.shape.topology_class
        if self._peers is None or topology_class is None or not topology_class.near_nic or view.plugin_chooses:
            return NO_RAILS
        key = topology_class, view.name if view.name in self._nodes else None
        if key not in self._preferred:
            self._preferred[key] = self._most_used(topology_class, view.name)
        busy = 0
        for uid, gpus in on_the_network(self._state, view):
            busy |= gpus if uid != self._uid else 0
        return Rails(self._preferred[key], busy)

    def _most_used(self, topology_class: TopologyClass, but: str) -> int:
        """Return the GPUs of the rails that most members have on other nodes of the class."""
        elsewhere = (
            member for member in self._members if member.topology_class is topology_class and member.node != but
        )
        count = Counter(position for member in elsewhere for position in members_of(member.rails))
        most = max(count.values(), default=0)
        return sum(1 << position for position, members in count.items() if members == most)

    @cached_property
    def _nodes(self) -> frozenset[str]:
        return frozenset(member.node for member in self._members)

    @cached_property
    def _members(self) -> list[_Member]:
        holds, views = self._state.holds, self._state.views
        held, members = holds.places(self._now), []
        for pod in self._peers or ():
            name = pod.node or held.get(pod.uid) or min(self._state.claimed_on(pod.uid), default="")
            view = views.get(name)
            if view is None or view.shape.topology_class is None:
                continue
            gpus = view.claimed_by(pod.uid) or holds.own(pod.uid, name, self._now)
            members.append(_Member(name, view.shape.topology_class, view.shape.topology_class.on_rails_of(gpus)))
        return members


def on_the_network(state: ClusterState, view: NodeView) -> Iterator[tuple[str, int]]:
    """Yield the pods of a node whose groups run on several nodes, by UID, and the GPUs that share a NIC with theirs."""
    topology_class = view.shape.topology_class
    uids = {claim.uid for claim, standing in view.claims if standing is not Standing.FREE}
    for uid in sorted(uids):
        if topology_class and state.indexes.groups.is_spread(uid):
            yield uid, topology_class.on_rails_of(view.claimed_by(uid))
