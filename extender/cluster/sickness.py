"""Which pods hold GPUs that are sick, and who belongs to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.ownership.holdings import Holding
from extender.cluster.state import ClusterState

TAINTED: Final = "tainted by its DRA driver: "
_REASONS = 2
"""Of one GPU, that people are told."""


@dataclass(frozen=True, slots=True)
class SickGpu:
    """A GPU that is unfit through itself, as its agent says, or its DRA driver."""

    uuid: str
    index: int
    since: int
    """In seconds since the epoch: the same GPU that falls sick again is another case. 0: only its driver says so."""
    reason: str


@dataclass(frozen=True, slots=True)
class Stricken:
    """A pod that holds sick GPUs."""

    pod: GpuPod
    node: str
    gpus: tuple[SickGpu, ...]
    is_certain: bool
    """The agent calls one of them sick, and saw this pod with it; else it is what was planned, or what a driver says."""


def stricken_pods(state: ClusterState) -> Iterator[Stricken]:
    """Yield the pods that hold sick GPUs, node by node; linear in the pods of such nodes."""
    for name in sorted(state.conditions.sick):
        view = state.views[name]
        sick = _sick_gpus(view)
        for held in view.holdings:
            gpus = tuple(gpu for gpu in sick if gpu.uuid in held.gpus)
            if gpus and not held.pod.ended:
                yield Stricken(
                    held.pod, name, gpus, any(gpu.since and _is_certain(view, held, gpu.uuid) for gpu in gpus)
                )


def companions(state: ClusterState, pod: GpuPod) -> list[GpuPod]:
    """Return the other pods of a pod's group that are on a node, and have not ended."""
    return [other for other in state.indexes.groups.beside(pod.uid) if other.node and not other.ended]


def _is_certain(view: NodeView, held: Holding, gpu: str) -> bool:
    """Whether the agent saw the pod with the GPU: it knows pods by name, and the ledger says which one of that name."""
    seen = (view.holders.get(gpu), *view.sharers.get(gpu, ()), *view.dra.users.get(gpu, ()))
    is_named = any(who is not None and (who.namespace, who.name) == held.pod.key for who in seen)
    return is_named and (held.seen or gpu in held.claimed)


def _sick_gpus(view: NodeView) -> tuple[SickGpu, ...]:
    topology, status = view.payloads.topology.value, view.payloads.status.value
    if topology is None:
        return ()
    node, said = topology.topology_class.node, {gpu.uuid: gpu for gpu in status.gpus} if status else {}
    whole = dict(zip(node.positions, topology.uuids, strict=True))
    sick = []
    for uuid, index in zip(topology.devices, node.indexes, strict=True):
        gpu, taint = said.get(whole[index]), view.dra.tainted.get(whole[index])
        if gpu and gpu.sick_since is not None:
            reason = ", ".join(gpu.reasons[:_REASONS]) or "its agent does not say why"
            sick.append(SickGpu(uuid, index, gpu.sick_since, reason))
        elif taint:
            sick.append(SickGpu(uuid, index, 0, TAINTED + taint))
    return tuple(sick)
