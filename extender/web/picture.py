"""A node as its page draws it: each GPU in its holder's colour, what is sick with its reason, and the ring of one pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from extender.inspect.inspection import GpuInfo, NodeInfo, PodInfo
from topology.formats.marks import Mark, colour_of, letters_of
from topology.formats.render import render_svg
from topology.node.model import NodeTopology

BEING_BOUND = "a pod that is being bound"
SHARERS = "pods that share it"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has GPUs of the node, with the letter and the colour that the picture gives it."""

    letter: str
    colour: int
    name: str
    """`namespace/name`, `BEING_BOUND` or `SHARERS`."""
    indexes: tuple[int, ...]


def draw(topology: NodeTopology, node: NodeInfo, ringed: PodInfo | None = None) -> str:
    """Return the picture, with the ring of `ringed` if that is a pod on the node."""
    positions = {gpu.index: position for position, gpu in enumerate(node.gpus)}
    ring = [positions[index] for index in ringed.indexes if index in positions] if ringed else []
    free = [position for position, gpu in enumerate(node.gpus) if gpu.state == "free"]
    return render_svg(topology, free, ring, _marks(node))


def holders(node: NodeInfo) -> list[Holder]:
    """Return who has the node's GPUs, in the picture's order."""
    return [
        Holder(letter, colour_of(letter), name, tuple(gpu.index for gpu in node.gpus if _holder(gpu) == name))
        for name, letter in letters_of(_marks(node)).items()
    ]


def version(node: NodeInfo) -> str:
    """Return a word that changes when the picture does."""
    return f"{crc32(repr((node.gpus, node.closed)).encode()):08x}"


def _marks(node: NodeInfo) -> Sequence[Mark]:
    return [Mark(_holder(gpu), gpu.line) for gpu in node.gpus]


def _holder(gpu: GpuInfo) -> str:
    return gpu.pod or {"held": BEING_BOUND, "shared": SHARERS}.get(gpu.state, "")
