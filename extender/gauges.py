"""The gauges of `metrics.GAUGES`, as the cluster is when somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from extender.cluster.candidates.openness import BY_DRA
from extender.cluster.sickness import stricken_pods
from extender.cluster.state import ClusterState
from extender.metrics import Figures


def gauges_of(state: ClusterState, schedulers: Collection[str]) -> Figures:
    """Return what the state tells, of schedulers that ask us; linear in nodes, a few milliseconds for thousands."""
    machines = [view for view in state.views.values() if view.uuids]
    by_others = (node for _, node in state.schedulers.placed_by_others(schedulers))
    amiss = [held for name in state.amiss for held in state.views[name].holdings]
    return {
        "nodes": len(machines),
        "nodes_closed": sum(view.shape.closed is not None for view in machines),
        "stands_aside": sum(view.shape.closed == BY_DRA for view in machines),
        "gpus": sum(len(view.uuids) for view in machines),
        "gpus_free": sum(view.shape.free_gpus.bit_count() for view in machines),
        "gpus_shared": sum(len(view.shape.shares.shared) for view in machines),
        "share_gib_taken": sum(use.memory_gib for view in machines for use in view.uses.values()),
        "share_gib_left": sum(gpu.left_gib for view in machines for gpu in view.shape.shares.shared),
        "gpus_in_conflict": sum(len(view.conflicts.keys() | view.disputed) for view in machines),
        "gpus_held_by_claims": sum(len(view.dra.held) for view in machines),
        "pods_on_sick_gpus": sum(1 for _ in stricken_pods(state)),
        "topology_classes": len({view.shape.topology_class for view in machines}),
        "nodes_silent": state.silent,
        "ledgers_broken": sum(view.is_broken for view in state.views.values()),
        "pods_unledgered": sum(not held.is_settled or held.hidden != 0 for held in amiss),
        "nodes_unsettled": len(state.unsettled),
        "assumed_placements": len(state.holds),
        "pods": len(state.pods) - len(state.placeholders),
        "pods_waiting": state.pods.waiting - len(state.placeholders),
        "placeholders": len(state.placeholders),
        "pods_of_other_schedulers": sum(node in state.views and bool(state.views[node].uuids) for node in by_others),
    }


def refused_of(state: ClusterState) -> Counter[str]:
    """Return how many pods wait by each reason of their last refusal."""
    return Counter({reason.value: count for reason, count in state.refusals.waiting().items()})
