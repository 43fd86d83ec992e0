"""Nodes, pods and whole states for tests, in one line each."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from extender.cluster.objects.budgets import (
    LabelSelector,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from extender.cluster.objects.kinds import (
    Container,
    ContainerState,
    ContainerStatus,
    Node,
    NodeCondition,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    SchedulingGroup,
)
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.verbs.wire import ExtenderArgs
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.annotations.records import (
    Claim,
    Holder,
    Ledger,
    Observed,
    PlacementRecord,
    encode_ledger,
    encode_observed,
    encode_placement,
)
from topology.annotations.status_codec import encode_status
from topology.formats.catalog import machine
from topology.node import status

Result = TypeVar("Result")

DGX = "dgx-a100"
PAIRS = "a100-pcie-8-pairs"
"""Eight GPUs, of which 0-1, 2-3, 4-5 and 6-7 are joined by NVLink."""


def gpus(node: str, *positions: int, machine_name: str = DGX) -> tuple[str, ...]:
    """Return UUIDs of a node's GPUs."""
    return tuple(machine(machine_name, host=node).gpus[position].uuid for position in positions)


@lru_cache(512)
def topology_of(machine_name: str, host: str) -> str:
    """Return the annotation of a node that is such a machine."""
    return encode_topology(machine(machine_name, host=host))


def claim(gpu: str, uid: str, version: str = "1") -> Claim:
    """Claim a GPU for the pod that `pod(uid)` builds."""
    return Claim(gpu, uid, "ml", uid, "main", version)


def node(
    name: str = "n1",
    machine_name: str = DGX,
    *,
    claims: tuple[Claim, ...] | None = (),
    generation: int = 1,
    held: Mapping[str, str] | None = None,
    sick: tuple[str, ...] = (),
    reports: int = 1,
    ready: bool = True,
    version: int = 1,
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    cpu: str = "",
    **annotations: str | None,
) -> Node:
    """Build a node with a ledger (`claims=None`: without); `held` is GPU → pod name as its agent observes it."""
    uid = uid or f"uid-{name}"
    observed = Observed({gpu: Holder("ml", pod_name, "main") for gpu, pod_name in (held or {}).items()})
    written = {
        keys.TOPOLOGY: topology_of(machine_name, name),
        keys.STATUS: encode_status(
            status.NodeGpuStatus(reports, tuple(status.GpuStatus(gpu, healthy=False) for gpu in sick))
        ),
        keys.OBSERVED: encode_observed(observed),
        keys.LEDGER: None if claims is None else encode_ledger(Ledger(generation, claims, uid)),
        **{_KEYS[short]: text for short, text in annotations.items()},
    }
    return Node(
        ObjectMeta(
            name=name,
            uid=uid,
            resource_version=str(version),
            labels=dict(labels or {}),
            annotations={key: text for key, text in written.items() if text is not None},
        ),
        NodeStatus({"cpu": cpu} if cpu else None, [NodeCondition("Ready", str(ready))]),
    )


def pod(
    name: str = "p1",
    count: int | str = 1,
    *,
    on: str | None = None,
    placed: tuple[str, ...] | None = None,
    wants: Mapping[str, str] | None = None,
    phase: str | None = None,
    terminated: bool | None = None,
    deleting: bool = False,
    version: int = 1,
    uid: str = "",
    created: str = "2026-01-01T00:00:00Z",
    nominated: str | None = None,
    priority: int | None = None,
    cpu: str = "",
    labels: Mapping[str, str] | None = None,
    gang: str = "",
) -> Pod:
    """Build a pod of one container; its UID is its name unless said otherwise; `gang` is its PodGroup."""
    asked: dict[str, str | int] = {keys.GPU_RESOURCE: count} | ({"cpu": cpu} if cpu else {})
    annotations = dict(wants or {})
    if placed is not None:
        annotations[keys.PLACEMENT] = encode_placement(PlacementRecord({"main": placed}))
    state = ContainerState(terminated={}) if terminated else ContainerState(running={})
    return Pod(
        ObjectMeta(
            name=name,
            namespace="ml",
            uid=uid or name,
            resource_version=str(version),
            creation_timestamp=created,
            deletion_timestamp="2026-01-02T00:00:00Z" if deleting else None,
            annotations=annotations,
            labels=dict(labels) if labels else None,
        ),
        PodSpec(
            node_name=on,
            priority=priority,
            containers=[Container("main", ResourceRequirements(asked))],
            scheduling_group=SchedulingGroup(gang) if gang else None,
        ),
        PodStatus(
            phase=phase,
            nominated_node_name=nominated,
            container_statuses=None if terminated is None else [ContainerStatus("main", state)],
        ),
    )


def running(name: str, on: str, *placed: str, version: int = 1) -> Pod:
    """Build a pod that runs on a node with these GPUs."""
    return pod(name, len(placed), on=on, placed=placed, phase="Running", terminated=False, version=version)


def budget(name: str, allowed: int, *counted: str, **labels: str) -> PodDisruptionBudget:
    """Build a PodDisruptionBudget of pods with these labels; it has counted the eviction of those that are named already."""
    return PodDisruptionBudget(
        ObjectMeta(name=name, namespace="ml", uid=name, resource_version="1"),
        PodDisruptionBudgetSpec(LabelSelector(labels)),
        PodDisruptionBudgetStatus(allowed, dict.fromkeys(counted, "2026-01-01T00:00:00Z")),
    )


def cluster(
    *objects: Node | Pod,
    budgets: Sequence[PodDisruptionBudget] | None = None,
    into: ClusterState | None = None,
) -> ClusterState:
    """Return a state that has listed these objects and nothing else; `budgets=None`: it may not read them."""
    state = into or ClusterState()
    if budgets is not None:
        state.budgets.replaced(budgets)
    state.nodes.replaced([item for item in objects if isinstance(item, Node)])
    PodFeed(state).replaced([item for item in objects if isinstance(item, Pod)])
    return state


def free(state: ClusterState, name: str = "n1") -> tuple[int, ...]:
    """Return the positions of a node's free GPUs."""
    mask = state.views[name].shape.free
    return tuple(position for position in range(mask.bit_length()) if mask >> position & 1)


def args(asked: Pod, *names: str) -> ExtenderArgs:
    """Ask about a pod and nodes as kube-scheduler does."""
    return ExtenderArgs(asked, node_names=list(names))


def at(seconds: float = 0.0) -> Instant:
    """Return a moment, on both clocks that many seconds after the pods were created."""
    return Instant(seconds, 1_767_225_600.0 + seconds)


def finish(steps: Generator[None, None, Result]) -> Result:
    """Take one step after the other, and return what they come to."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result


_KEYS = {
    "topology": keys.TOPOLOGY,
    "status": keys.STATUS,
    "observed": keys.OBSERVED,
    "ledger": keys.LEDGER,
    "digest": keys.TOPOLOGY_DIGEST,
}
