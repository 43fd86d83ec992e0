"""A node as its page draws it: each GPU in its holder's colour, what is sick with its reason, and the ring of one pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.inspect.inspection import GpuInfo, NodeDetail, NodeInfo, PodInfo
from extender.inspect.nvlinks import LinkFaultInfo, link_faults_of
from extender.inspect.sight import EVERYTHING, Sight
from extender.kit.clock import Instant
from topology.formats.marks import Mark, colour_of, letters_of
from topology.formats.render import render_svg
from topology.node.model import NodeTopology

BEING_BOUND = "a pod that is being bound"
SHARERS = "pods that share it"


@dataclass(frozen=True, slots=True)
class PicturedHolder:
    """Who has GPUs of the node, with the letter and the colour that the picture gives it."""

    letter: str
    colour: int
    name: str
    """`namespace/name`, `BEING_BOUND` or `SHARERS`."""
    indexes: tuple[int, ...]


def of_node(state: ClusterState, name: str, now: Instant, ringed: str = "", sight: Sight = EVERYTHING) -> str | None:
    """Return the picture of a node as a reader may see it, `None` where its topology is not known."""
    view = state.views.get(name)
    if view is None or view.shape.topology_class is None:
        return None
    [node] = inspection.nodes(state, [name], now)
    pods = [pod for pod in inspection.pods_on(state, name) if sight.sees(pod.namespace)]
    faults = sight.faults(link_faults_of(view))
    return draw(view.shape.topology_class.node, sight.node(node), pods, faults, ringed)


def draw(
    topology: NodeTopology, node: NodeInfo, pods: Sequence[PodInfo], faults: Sequence[LinkFaultInfo], ringed: str = ""
) -> str:
    """Return the picture, with the ring of `ringed`, a `namespace/name`; those of other pods are seen by who points at them."""
    positions = {gpu.index: position for position, gpu in enumerate(node.gpus)}
    rings = {
        f"{pod.namespace}/{pod.name}": [positions[index] for index in pod.indexes if index in positions] for pod in pods
    }
    free = [position for position, gpu in enumerate(node.gpus) if gpu.state == "free"]
    return render_svg(topology, free, rings.get(ringed), _marks(node, faults), rings)


def holders(node: NodeInfo) -> list[PicturedHolder]:
    """Return who has the node's GPUs, in the picture's order."""
    return [
        PicturedHolder(letter, colour_of(letter), name, tuple(gpu.index for gpu in node.gpus if _holder(gpu) == name))
        for name, letter in letters_of(_marks(node)).items()
    ]


def version(node: NodeDetail, pods: Sequence[PodInfo]) -> str:
    """Return a word that changes when the picture does."""
    rings = [pod.indexes for pod in pods]
    return f"{crc32(repr((node.gpus, node.closed, node.link_faults, rings)).encode()):08x}"


def _marks(node: NodeInfo, faults: Sequence[LinkFaultInfo] = ()) -> Sequence[Mark]:
    return [_mark(gpu, faults) for gpu in node.gpus]


def _mark(gpu: GpuInfo, faults: Sequence[LinkFaultInfo]) -> Mark:
    holder, links = _holder(gpu), _unused(gpu, faults)
    is_sick = gpu.state == "unusable" or gpu.outlook is not None
    return Mark(holder, gpu.line, links) if is_sick else Mark(holder, links=links, to_watch=gpu.line)


def _unused(gpu: GpuInfo, faults: Sequence[LinkFaultInfo]) -> str:
    return "; ".join(fault.line for fault in faults if fault.uuid == gpu.uuid)


def _holder(gpu: GpuInfo) -> str:
    return gpu.pod or {"held": BEING_BOUND, "shared": SHARERS}.get(gpu.state, "")
