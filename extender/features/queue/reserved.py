"""Recognises pods for which GPUs are held already, such as those that others have moved away from: they start there. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from extender.cluster.state import ClusterState
from extender.features.queue.waiting import QueuedPods
from extender.kit.clock import Instant
from extender.planning.planned_nodes import HostDemand
from extender.planning.planner import Start
from extender.planning.queue import NodesOfCluster
from extender.planning.units import Assignment
from topology.placement.verdict import Placement


def reserved_plans(state: ClusterState, queue: QueuedPods, now: Instant) -> Iterator[Start]:
    """Yield the single pods whose held GPUs are free by now, where the node lets them; the others are planned like all pods."""
    nodes = NodesOfCluster(state)
    for unit in queue.units:
        member, uid = unit.members[0], unit.members[0].pod.metadata.uid
        hold = None if unit.is_gang else state.holds.firm_of(uid, now.monotonic)
        view = state.views.get(hold.node) if hold else None
        if hold is None or view is None or hold.node in member.avoided:
            continue
        if not nodes.lets(member.pod, hold.node, HostDemand.of(member.pod), member.request.alternative):
            continue
        decision = view.decide_on(hold.gpus, member.request)
        if isinstance(decision, Placement):
            yield Start(unit, (Assignment(member.pod, member.request, hold.node, decision),))
