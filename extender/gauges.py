"""The gauges of `metrics.GAUGES`, as the cluster is when somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from extender.cluster.candidates.openness import BY_DRA
from extender.cluster.sickness import stricken_pods
from extender.cluster.state import ClusterState
from extender.metrics import Figures
from topology.placement.topology_class import TopologyClass

_OF_NODES: Final = (
    "nodes",
    "nodes_closed",
    "stands_aside",
    "gpus",
    "gpus_free",
    "gpus_shared",
    "share_gib_taken",
    "share_gib_left",
    "gpus_in_conflict",
    "gpus_held_by_claims",
    "ledgers_broken",
)
"""What is added up over all nodes."""


def gauges_of(state: ClusterState, schedulers: Collection[str]) -> Figures:
    """Return what the state tells, of schedulers that ask us; linear in nodes, a few milliseconds for thousands."""
    found, classes = Counter[str](), set[TopologyClass | None]()
    views = state.views
    for view in views.values():  # once through all of them: a round takes long enough
        found["ledgers_broken"] += view.is_broken
        if not view.uuids:
            continue
        shape, shared = view.shape, view.shape.shares.shared
        classes.add(shape.topology_class)
        found["nodes"] += 1
        found["gpus"] += len(view.uuids)
        found["gpus_free"] += shape.free_gpus.bit_count()
        if shape.closed is not None:
            found["nodes_closed"] += 1
            found["stands_aside"] += shape.closed == BY_DRA
        if shared or view.uses:
            found["gpus_shared"] += len(shared)
            found["share_gib_taken"] += sum(use.memory_gib for use in view.uses.values())
            found["share_gib_left"] += sum(gpu.left_gib for gpu in shared)
        if view.conflicts or view.dra.held:
            found["gpus_in_conflict"] += len(view.conflicts.keys() | view.disputed)
            found["gpus_held_by_claims"] += len(view.dra.held)
    by_others = (views.get(node) for _, node in state.schedulers.placed_by_others(schedulers))
    amiss = [held for name in state.amiss for held in views[name].holdings]
    return {name: found[name] for name in _OF_NODES} | {
        "pods_on_sick_gpus": sum(1 for _ in stricken_pods(state)),
        "topology_classes": len(classes),
        "nodes_silent": state.silent,
        "pods_unledgered": sum(not held.is_settled or held.hidden != 0 for held in amiss),
        "nodes_unsettled": len(state.unsettled),
        "assumed_placements": len(state.holds),
        "pods": len(state.pods) - len(state.placeholders),
        "pods_waiting": state.pods.waiting - len(state.placeholders),
        "placeholders": len(state.placeholders),
        "pods_of_other_schedulers": sum(view is not None and bool(view.uuids) for view in by_others),
    }


def refused_of(state: ClusterState) -> Counter[str]:
    """Return how many pods wait by each reason of their last refusal."""
    return Counter({reason.value: count for reason, count in state.refusals.waiting().items()})
