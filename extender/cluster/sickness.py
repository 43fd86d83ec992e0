"""Which pods hold GPUs that are sick, and who belongs to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.ownership.holdings import Holding
from extender.cluster.state import ClusterState

_REASONS = 2
"""Of one GPU, that people are told."""


@dataclass(frozen=True, slots=True)
class SickGpu:
    """A GPU that is unfit through itself, as its agent says."""

    uuid: str
    index: int
    since: int
    """In seconds since the epoch: the same GPU that falls sick again is another case."""
    reason: str


@dataclass(frozen=True, slots=True)
class Stricken:
    """A pod that holds sick GPUs."""

    pod: GpuPod
    node: str
    gpus: tuple[SickGpu, ...]
    is_certain: bool
    """The agent saw this pod with one of them; else it is what was planned."""


def stricken_pods(state: ClusterState) -> Iterator[Stricken]:
    """Yield the pods that hold sick GPUs, node by node; linear in the pods of such nodes."""
    for name in sorted(state.conditions.sick):
        view = state.views[name]
        sick = _sick_gpus(view)
        for held in view.holdings:
            gpus = tuple(gpu for gpu in sick if gpu.uuid in held.gpus)
            if gpus and not held.pod.ended:
                yield Stricken(held.pod, name, gpus, any(_is_certain(view, held, gpu.uuid) for gpu in gpus))


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
    if topology is None or status is None:
        return ()
    node, said = topology.topology_class.node, {gpu.uuid: gpu for gpu in status.gpus}
    whole = dict(zip(node.positions, topology.uuids, strict=True))
    return tuple(
        SickGpu(uuid, index, gpu.sick_since, ", ".join(gpu.reasons[:_REASONS]) or "its agent does not say why")
        for uuid, index in zip(topology.devices, node.indexes, strict=True)
        if (gpu := said.get(whole[index])) and gpu.sick_since is not None
    )
