"""Who has the GPUs of a node that are not free, and what is wrong with those that nobody can have."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Final

from extender.cluster.node_view import NodeView
from extender.inspect.faults import SLICED, Faults
from extender.inspect.inspection import NodeInfo
from extender.inspect.occupation import occupations

_NAMED: Final = 3
"""Pods, and GPUs that are unusable; a table has one line for a node."""


def who_has(view: NodeView, held: int) -> str:
    """Name the pods that have most of the node's GPUs and slices, then the GPUs that nobody may have, each with its reason.

    A GPU that is cut into slices is had by whoever has these.
    """
    pods: Counter[str] = Counter()
    unusable: dict[int, str] = {}
    assert view.shape.topology_class is not None, "GPUs were counted there"
    faults = Faults(view)
    indexes = view.shape.topology_class.node.indexes
    for position, occupied in enumerate(occupations(view, held)):
        if occupied.pod:
            pods[occupied.pod] += 1
        elif occupied.state == "held":
            pods["a pod that is being placed"] += 1
        elif occupied.state != "free" and (reasons := faults.of(position)) != (SLICED,):
            unusable[indexes[position]] = ", ".join(reasons) or occupied.state
    most = pods.most_common(_NAMED)
    said = [f"{pod} has {count}" for pod, count in most]
    if rest := pods.total() - sum(count for _, count in most):
        said.append(f"others have {rest}")
    said += [f"GPU {index}: {why}" for index, why in islice(unusable.items(), _NAMED)]
    if len(unusable) > _NAMED:
        said.append(f"{len(unusable) - _NAMED} more are unusable")
    return ", ".join(said)


def fault_of(node: NodeInfo) -> str:
    """Say why the node is closed or set aside, else whom alone it serves, and which GPUs are unusable; equal reasons once."""
    if node.closed:
        return node.closed
    if node.set_aside:
        return f"{node.set_aside}: {sum(gpu.state == 'free' for gpu in node.gpus)} free do not count"
    alike: dict[str, list[int]] = {}
    for gpu in node.gpus:
        if gpu.state == "unusable":
            alike.setdefault(", ".join(gpu.reasons), []).append(gpu.index)
    said = [f"GPU {','.join(map(str, indexes))}: {why}" for why, indexes in alike.items()]
    return "; ".join(["for ResourceClaims only", *said] if node.by_claim else said)
