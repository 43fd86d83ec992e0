"""Machines in pairs whose free GPUs are scattered, as autoscalers see them: with labels of their group and a count of GPUs."""

from __future__ import annotations

import msgspec

from extender.cluster.objects.kinds import Node, NodeStatus, Pod
from extender.cluster.objects.stands_for import StandsFor
from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_nodes
from tests.extender.builders import PAIRS, args, at, claim, gpus, node, pod, running
from topology.annotations import keys

NVLINK = {keys.REQUIRED_AFFINITY: "nvlink"}
LABEL = "node.kubernetes.io/instance-type"
NAMESPACE = "gputopo-placeholders"


def counted(built: Node, group: str = "pairs.8", *, gpus: int = 8, created: str = "2025-12-31T00:00:00Z") -> Node:
    """Add what autoscalers look at."""
    metadata = msgspec.structs.replace(built.metadata, labels={LABEL: group}, creation_timestamp=created)
    status = NodeStatus({keys.GPU_RESOURCE: str(gpus)}, built.status.conditions)
    return msgspec.structs.replace(built, metadata=metadata, status=status)


def scattered(name: str, *used: int, group: str = "pairs.8") -> tuple[Node, Pod]:
    """Build a machine of four pairs, and the pod that holds these of its GPUs."""
    held = gpus(name, *used, machine_name=PAIRS)
    owner = f"on-{name}"
    built = node(name, PAIRS, claims=tuple(claim(gpu, owner) for gpu in held))
    return counted(built, group), running(owner, name, *held)


def ring(name: str = "ring", count: int = 2) -> Pod:
    """Build a pod that needs GPUs joined by NVLink."""
    return pod(name, count, wants=NVLINK, uid=name)


def refuse(state: ClusterState, asked: Pod, *names: str, now: float = 0.0) -> None:
    """Have filter refuse the pod on these nodes."""
    assert not filter_nodes(state, args(asked, *names), at(now)).node_names


def placeholder(of: Pod, count: int = 5, *, created: str = "2026-01-01T00:00:00Z", namespace: str = NAMESPACE) -> Pod:
    """Build the pod of a placeholder, as the watch shows it."""
    metadata = of.metadata
    stands_for = StandsFor(metadata.namespace, metadata.name, metadata.uid)
    built = pod(f"gputopo-{metadata.uid}-x", count, created=created, wants={keys.PLACEHOLDER_FOR: str(stands_for)})
    return msgspec.structs.replace(built, metadata=msgspec.structs.replace(built.metadata, namespace=namespace))
