"""What is kept of a pod: bounded, whatever its owner writes, and one object for what many pods say alike."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from extender.cluster.objects.budgets import MAX_LABELS, TOO_MANY_LABELS
from extender.cluster.objects.gpu_pods import EVICTED, GATED, NEVER, is_said_to_be_gated, may_preempt
from extender.cluster.objects.group_words import LABELS
from extender.cluster.objects.kinds import ContainerState, ContainerStatus, ObjectMeta, Pod, PodSpec, PodStatus
from extender.cluster.objects.movable_pods import OPTED_IN, MovablePods
from extender.cluster.objects.pod_demand import PodDemand
from topology.annotations import keys

MAX_STATUSES = 16
"""Of one pod that are remembered as other pods have them."""


def lean(pod: Pod, asked: PodDemand, movable: MovablePods = OPTED_IN) -> Pod:
    """Return the pod without what its owner may have any number of: labels beyond a bound, further gates, conditions.

    What says on which nodes it may be counts as long as it waits, or may be moved. What many pods say alike is one object
    for all.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    may_move = movable.include(pod)
    conditions = [each for each in status.conditions or () if each.type == EVICTED and each.status == "True"][:1]
    conditions += [each for each in status.conditions or () if each.type == keys.PLANNED_CONDITION][:1]
    if not spec.node_name and is_said_to_be_gated(pod):
        conditions.append(GATED)
    kept = PodSpec(
        node_name=spec.node_name and sys.intern(spec.node_name),
        scheduler_name=spec.scheduler_name and sys.intern(spec.scheduler_name),
        scheduling_gates=_two_gates(spec),
        priority=spec.priority,
        priority_class_name=sys.intern(spec.priority_class_name) if may_move and spec.priority_class_name else None,
        containers=asked.spec.containers,
        init_containers=asked.spec.init_containers,
        resources=asked.spec.resources,
        scheduling_group=spec.scheduling_group,
        workload_ref=spec.workload_ref,
        overhead=asked.spec.overhead,
        preemption_policy=None if spec.node_name or may_preempt(pod) else NEVER,
        termination_grace_period_seconds=spec.termination_grace_period_seconds if may_move else None,
        restart_policy=sys.intern(spec.restart_policy) if may_move and spec.restart_policy else None,
    )
    return Pod(
        ObjectMeta(
            metadata.name,
            sys.intern(metadata.namespace),
            metadata.uid,
            metadata.resource_version,
            metadata.creation_timestamp,
            metadata.deletion_timestamp,
            _kept(metadata.labels),
            metadata.annotations,
            metadata.owner_references,
        ),
        kept if spec.node_name and not may_move else _constrained(kept, spec),
        PodStatus(
            status.phase and sys.intern(status.phase),
            status.nominated_node_name,
            conditions or None,
            status.extended_resource_claim_status,
            _states(status.container_statuses),
            _states(status.init_container_statuses),
            status.start_time if keys.EXPECTED_DURATION in (metadata.annotations or {}) or may_move else None,
        ),
        pod.json_bytes,
    )


def lean_with_claims(pod: Pod, asked: PodDemand, movable: MovablePods = OPTED_IN) -> Pod:
    """Return the same of a pod with ResourceClaims, with what says which they are, and how long it may take to end."""
    kept, spec = lean(pod, asked, movable), pod.spec
    return msgspec.structs.replace(
        kept,
        spec=msgspec.structs.replace(
            kept.spec,
            resource_claims=spec.resource_claims,
            termination_grace_period_seconds=spec.termination_grace_period_seconds,
        ),
        status=msgspec.structs.replace(kept.status, resource_claim_statuses=pod.status.resource_claim_statuses),
    )


def _two_gates(spec: PodSpec) -> list[dict[str, object]] | None:
    """Return at most two gates: ours, and one that somebody else has to remove."""
    gates = spec.scheduling_gates or ()
    ours = [gate for gate in gates if gate.get("name") == keys.PLAN_GATE]
    others = [gate for gate in gates if gate.get("name") != keys.PLAN_GATE]
    return [*ours[:1], *others[:1]] or None


def _constrained(kept: PodSpec, by: PodSpec) -> PodSpec:
    """Return it with what says on which nodes the pod may be."""
    return msgspec.structs.replace(
        kept,
        node_selector=by.node_selector,
        tolerations=by.tolerations,
        affinity=by.affinity,
        topology_spread_constraints=by.topology_spread_constraints,
        resource_claims=by.resource_claims,
        volumes=by.volumes,
    )


def _states(statuses: list[ContainerStatus] | None) -> list[ContainerStatus] | None:
    """Return which containers are in which state, without since when and why, of which nobody asks."""
    if statuses is None or len(statuses) > MAX_STATUSES:
        return statuses
    return _states_alike(
        tuple(
            (
                each.name,
                each.ready,
                *(part is not None for part in (each.state.waiting, each.state.running, each.state.terminated)),
            )
            for each in statuses
        )
    )


@lru_cache(1024)
def _states_alike(states: tuple[tuple[str, bool, bool, bool, bool], ...]) -> list[ContainerStatus]:
    return [
        ContainerStatus(name, ContainerState(*({} if is_in else None for is_in in parts)), ready)
        for name, ready, *parts in states
    ]


def without_constraints(spec: PodSpec) -> PodSpec:
    """Return the spec without what says on which nodes the pod may be."""
    return msgspec.structs.replace(
        spec,
        node_selector=None,
        tolerations=None,
        affinity=None,
        topology_spread_constraints=None,
        resource_claims=None,
        volumes=None,
    )


def _kept(labels: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return labels as they are kept: nearly all texts are also another pod's."""
    if labels and len(labels) > MAX_LABELS:
        return TOO_MANY_LABELS | {key: labels[key] for key in LABELS & labels.keys()}
    return {sys.intern(key): sys.intern(text) for key, text in labels.items()} if labels else None
