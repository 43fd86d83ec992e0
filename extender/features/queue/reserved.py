"""Recognises units for which GPUs are held already, such as those that others have moved away from: they start there. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from extender.cluster.candidates.holds import Held, Hold
from extender.cluster.state import ClusterState
from extender.features.queue.waiting import QueuedPods
from extender.kit.clock import Instant
from extender.planning.planned_nodes import NO_DEMAND, HostDemand
from extender.planning.planner import Start
from extender.planning.queue import NodesOfCluster
from extender.planning.units import Assignment, Unit
from topology.placement.verdict import Placement


def without_reserved(state: ClusterState, queue: QueuedPods, now: Instant) -> list[Unit]:
    """Return the units for none of whose pods GPUs are held."""
    return [unit for unit in queue.units if not _is_reserved(state, unit, now)]


def reserved_plans(state: ClusterState, queue: QueuedPods, now: Instant) -> Iterator[Start]:
    """Yield the units whose held GPUs are all free by now, where the nodes let them; the others are planned like all units."""
    nodes, firm = NodesOfCluster(state), state.holds.firm(now.monotonic)
    for unit in queue.units:
        if not _is_reserved(state, unit, now):
            continue
        with state.effort.bounded():  # selectors of claims that take longer go on in the next plan
            assignments = tuple(_assignments(state, nodes, unit, firm))
        size = unit.group.size if unit.group else None  # more pods may have come since GPUs are held for so many
        if len(assignments) >= min(unit.needed, size or unit.needed) and _is_in_one_domain(state, unit, assignments):
            yield Start(unit, assignments)


def held_for_others(state: ClusterState, uid: str, node: str, firm: Mapping[str, Mapping[str, Hold]]) -> Held:
    """Return what of these holds, by node and UID, is held on a node for other pods; a share with claims there counts by them."""
    others = ((owner, hold) for owner, hold in firm.get(node, {}).items() if owner != uid)
    return Held.all_of(hold.held for owner, hold in others if not (hold.shares and node in state.claimed_on(owner)))


def _is_reserved(state: ClusterState, unit: Unit, now: Instant) -> bool:
    return any(state.holds.firm_of(member.pod.metadata.uid, now.monotonic) for member in unit.members)


def _is_in_one_domain(state: ClusterState, unit: Unit, assignments: Iterable[Assignment]) -> bool:
    """Whether a gang would be in one domain, if it requires one. The requirement may be younger than the hold on its GPUs."""
    if unit.group is None or not unit.group.required:
        return True
    locations, level = state.nodes.locations, unit.group.level
    places = (*unit.placed, *(locations[place.node] for place in assignments if place.node in locations))
    return len({place.domain(level) for place in places}) == 1


def _assignments(
    state: ClusterState, nodes: NodesOfCluster, unit: Unit, firm: Mapping[str, Mapping[str, Hold]]
) -> Iterator[Assignment]:
    """Yield the places of the members that can go where GPUs are held for them, beside what is held for others.

    Two shares may be held of a GPU that a third one is still to leave. The room that is there already is for one of them.
    """
    holds = {uid: hold for of_node in firm.values() for uid, hold in of_node.items()}
    demands = dict[str, HostDemand]()
    """Node → what earlier members need there."""
    for member in unit.members:
        hold = holds.get(member.pod.metadata.uid)
        view = state.views.get(hold.node) if hold else None
        if hold is None or view is None or hold.node in member.avoided:
            continue
        needed = demands.get(hold.node, NO_DEMAND) + HostDemand.of(member.pod)
        if not nodes.lets(member.pod, hold.node, needed, member.request.alternative):
            continue
        others = held_for_others(state, member.pod.metadata.uid, hold.node, firm)
        decision = view.decide_on(hold.held, member.request, others)
        if isinstance(decision, Placement):
            demands[hold.node] = needed
            yield Assignment(member.pod, member.request, hold.node, decision)
