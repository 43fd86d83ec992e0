"""Pods behind the queue's gate, single ones and gangs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from msgspec.structs import replace

from extender.binding.intents import Done, Reply, SwapLedger
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.features.queue.started import StartedUnits
from extender.features.queue.waiting import QueuedPods, ReadPods, read_queue
from tests.extender.builders import at, pod
from topology.annotations import keys
from topology.effort import finish

OTHER_GATE = "kueue.x-k8s.io/admission"


def queued(
    name: str,
    count: int = 1,
    *,
    gates: tuple[str, ...] = (keys.PLAN_GATE,),
    wants: Mapping[str, str] | None = None,
    priority: int | None = None,
    created: str = "2026-01-01T00:00:00Z",
    on: str | None = None,
    version: int = 1,
    **spec: object,
) -> Pod:
    """Return a pod that waits in the queue; `spec` adds to its spec."""
    built = pod(name, count, wants=wants, priority=priority, created=created, on=on, version=version)
    return replace(built, spec=replace(built.spec, scheduling_gates=[{"name": gate} for gate in gates] or None, **spec))


def of_gang(name: str, count: int = 2, *, size: int = 2, least: int = 0, group: str = "g", **more: object) -> Pod:
    """Return a member of a gang that waits in the queue."""
    wants = {keys.GROUP: group, keys.GROUP_SIZE: str(size), keys.GANG: "required"}
    wants |= {keys.GROUP_MIN: str(least)} if least else {}
    return queued(name, count, wants=wants, **more)  # type: ignore[arg-type]


def read(
    state: ClusterState, seconds: float = 60.0, planned: frozenset[str] = frozenset(), before: ReadPods | None = None
) -> QueuedPods:
    """Read the queue; `before`: what was read of it before."""
    return finish(read_queue(state, at(seconds), planned, before))


def claim_all(started: StartedUnits, state: ClusterState, reply: Reply | None = None) -> list[SwapLedger]:
    """Write all claims that are to be written; returns what was sent."""
    return [claim_on(started, state, name, reply) for name in sorted(started.to_claim())]


def claim_on(started: StartedUnits, state: ClusterState, name: str, reply: Reply | None = None) -> SwapLedger:
    """Write the claims on one node, or let this be the answer to it; returns what was sent."""
    steps = started.claim(name, started.to_claim()[name], 0.0)
    swap = next(steps)
    assert isinstance(swap, SwapLedger)
    with suppress(StopIteration):
        steps.send(reply or Done(with_ledger(state.views[name].node, swap.ledger)))
        raise AssertionError("it is one write")
    return swap


def with_ledger(item: Node, ledger: str) -> Node:
    """Return the node with another ledger."""
    annotations = {**(item.metadata.annotations or {}), keys.LEDGER: ledger}
    version = str(int(item.metadata.resource_version) + 1)
    return replace(item, metadata=replace(item.metadata, annotations=annotations, resource_version=version))


def opened(item: Pod, node: str, *, version: int = 2) -> Pod:
    """Return the pod as it is once its gate has been opened."""
    annotations = {**(item.metadata.annotations or {}), keys.PLANNED: node}
    metadata = replace(item.metadata, annotations=annotations, resource_version=str(version))
    return replace(item, metadata=metadata, spec=replace(item.spec, scheduling_gates=None))


def bound(item: Pod, node: str, *, version: int = 3) -> Pod:
    """Return the pod as it is once it is bound."""
    now = opened(item, node, version=version)
    return replace(now, spec=replace(now.spec, node_name=node))
