"""Recognises plans that another planner has begun: the claims of pods that are still behind our gate. No I/O.

A plan is carried on when enough pods of its unit have claims that are still good. All members of a unit are claimed for before
the first gate is opened. So what is not enough was never begun, and its claims are taken back. Once a member is open, any claims
are carried on: the gang may have lost pods, or gained some, since. Where two planners have claimed for a pod on two nodes, its
claims on either of them count.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.cluster.state import ClusterState
from extender.features.queue.waiting import QueuedPods
from extender.planning.planner import Start
from extender.planning.units import Assignment, PendingPod
from topology.placement.verdict import Placement


def begun_plans(state: ClusterState, queue: QueuedPods) -> Iterator[Start]:
    """Yield the units that have been claimed for, and what they are to get."""
    claimed_for = state.claimed_for
    for unit in queue.units:
        if not any(member.pod.metadata.uid in claimed_for for member in unit.members):
            continue
        assignments = tuple(claimed for member in unit.members if (claimed := _claimed(state, member)))
        if len(assignments) >= unit.needed or (
            assignments and has_open_member(state, unit.members[0].pod.metadata.uid)
        ):
            yield Start(unit, assignments)


def has_open_member(state: ClusterState, uid: str) -> bool:
    """Whether the queue has opened the gate of another pod of this one's gang, which lives."""
    return any(peer.is_alive and peer.directed_to for peer in state.indexes.groups.beside(uid))


def _claimed(state: ClusterState, member: PendingPod) -> Assignment | None:
    uid = member.pod.metadata.uid
    for node in sorted(state.claimed_on(uid)):
        view = state.views[node]
        for request in member.requests if node not in member.avoided else ():
            decision = view.decide_for(uid, request)
            if isinstance(decision, Placement):
                assignment = Assignment(member.pod, request, node, decision)
                if assignment.gpus == view.claimed_by(uid):
                    return assignment
    return None
