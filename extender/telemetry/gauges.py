"""The gauges of `telemetry.core`, as the cluster is at the time of the call."""

from __future__ import annotations

from collections import Counter

from extender.cluster.sickness import stricken_pods
from extender.cluster.state import ClusterState
from extender.telemetry.metrics import Figures


def gauges_of(state: ClusterState) -> Figures:
    """Return what the state tells; none of it goes through all nodes."""
    views, indexes = state.views, state.indexes
    by_others = (views.get(node) for _, node in indexes.schedulers.placed_by_others())
    amiss = [held for name in state.conditions.amiss for held in views[name].holdings]
    return state.sums.figures | {
        "pods_on_sick_gpus": sum(1 for _ in stricken_pods(state)),
        "topology_classes": state.sums.topology_classes,
        "nodes_silent": len(state.heartbeats),
        "pods_unledgered": sum(not held.is_settled or held.hidden != 0 for held in amiss),
        "nodes_unsettled": len(state.conditions.unsettled),
        "assumed_placements": len(state.holds),
        "pods": len(state.pods) - len(indexes.stand_ins),
        "pods_waiting": state.pods.waiting - len(indexes.stand_ins),
        "pods_gated": len(indexes.gates.queued),
        "pods_waiting_for_other_schedulers": indexes.waiting.length(
            indexes.waiting.schedulers_but(indexes.schedulers.ours)
        ),
        "pods_of_other_schedulers": sum(view is not None and bool(view.uuids) for view in by_others),
    }


def refused_of(state: ClusterState) -> Counter[str]:
    """Return how many pods wait by each reason of their last refusal."""
    return Counter({reason.value: count for reason, count in state.memory.refusals.waiting().items()})
