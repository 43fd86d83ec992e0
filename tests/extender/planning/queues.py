"""Pods that wait in a queue, as steering sees them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from extender.binding.intents import Done, Nominate, Reply, Step
from extender.cluster.objects.kinds import ObjectMeta, OwnerReference, Pod, PodStatus
from extender.cluster.state import ClusterState
from extender.planning.plan import plan_queue
from extender.planning.queue import NodesOfCluster, next_wanted, on_their_way
from extender.planning.units import Assignment
from tests.extender.builders import at, pod
from tests.extender.shares import sharer
from topology.annotations import keys

SCHEDULER = ("gputopo",)


def waiting(
    name: str,
    count: int = 1,
    *,
    wants: Mapping[str, str] | None = None,
    owner: str = "",
    priority: int = 0,
    **spec: object,
) -> Pod:
    """Build a pod that waits for our scheduler; `spec` adds to its spec."""
    built = pod(name, count, wants=wants, priority=priority)
    references = [OwnerReference(owner, controller=True)] if owner else None
    metadata = replace(built.metadata, owner_references=references)
    return replace(built, metadata=metadata, spec=replace(built.spec, scheduler_name=SCHEDULER[0], **spec))


def waiting_share(name: str, gib: int, *, sharing_class: str = "") -> Pod:
    """Build a pod that waits for a share of a GPU."""
    built = sharer(name, gib, sharing_class=sharing_class)
    return replace(built, spec=replace(built.spec, scheduler_name=SCHEDULER[0]))


def nominated(item: Pod, node: str | None, *, by_us: bool = True, version: int = 2) -> Pod:
    """Return the next version of a pod, nominated for a node by us or by somebody else."""
    annotations = {**(item.metadata.annotations or {}), **({keys.NOMINATED: node} if node and by_us else {})}
    metadata = replace(item.metadata, annotations=annotations, resource_version=str(version))
    return replace(item, metadata=metadata, status=PodStatus(nominated_node_name=node))


def planned(state: ClusterState, seconds: float = 0.0) -> dict[str, str]:
    """Return where the pods of the queue are to go, by name."""
    return {assignment.pod.metadata.name: assignment.node for assignment in assignments(state, seconds)}


def assignments(state: ClusterState, seconds: float = 0.0) -> list[Assignment]:
    """Plan the queue."""
    wanted = next_wanted(state, SCHEDULER, at(seconds), at_most=100, ahead=None, may_begin=lambda _: True)
    return plan_queue(NodesOfCluster(state), wanted, on_their_way(state, at(seconds)))


def answered(steps: Step[bool], reply: Reply | None = None) -> tuple[Nominate | None, bool]:
    """Run one write to its end; the API server does it unless `reply` says otherwise."""
    try:
        intent = next(steps)
    except StopIteration as end:
        return None, end.value
    assert isinstance(intent, Nominate)
    try:
        steps.send(reply or Done(written(intent)))
    except StopIteration as end:
        return intent, end.value
    raise AssertionError("a nomination is one write")


def written(intent: Nominate) -> Pod:
    """Return the pod as the API server has it after the write."""
    before = waiting(intent.name)
    version = int(intent.resource_version) + 1
    return nominated(before, intent.node or None, version=version)


def bare(name: str) -> ObjectMeta:
    """Return the metadata of a pod that `waiting` builds."""
    return waiting(name).metadata
