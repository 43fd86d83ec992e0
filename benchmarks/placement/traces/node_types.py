"""How the GPUs of nodes without an agent are wired: as the user says, or guessed from their product and number."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from benchmarks.placement.traces.files import BadTrace
from benchmarks.sources import UnreadableSource, load_topology
from topology.formats.catalog import machine
from topology.node.model import NodeTopology

GUESSES: Final[Mapping[tuple[str, int], str]] = {
    ("*P100-SXM2*", 8): "dgx-1p",
    ("*V100-SXM2*", 8): "dgx-1v",
    ("*V100-SXM2*", 4): "v100-sxm2-4",
    ("*V100-SXM3*", 16): "dgx-2",
    ("*A100-SXM4*", 8): "dgx-a100",
    ("*A100-SXM4*", 4): "a100-sxm4-4",
    ("*A100*PCIe*", 8): "a100-pcie-8-pairs",
    ("*H100-80GB-HBM3", 8): "hgx-h100",
    ("*H100-80GB-HBM3", 4): "h100-sxm5-4",
    ("*H100-NVL", 8): "h100-nvl-8-pairs",
    ("*H800", 8): "hgx-h800",
    ("*H200", 8): "hgx-h200",
    ("*GH200*", 4): "gh200-4",
    ("*-B200", 8): "hgx-b200",
    ("*GB200", 4): "gb200-tray",
    ("*L40S", 8): "l40s-8",
    ("*L40S", 4): "l40s-4",
    ("*-L4", 8): "l4-8",
    ("*-T4", 4): "t4-4",
    ("*RTX-A6000", 4): "rtx-a6000-4-pairs",
    ("*RTX-3090", 2): "rtx-3090-2",
    ("*RTX-4090", 8): "rtx-4090-8",
}
"""Pattern of the label `nvidia.com/gpu.product`, and GPUs → the machine of the catalogue that such nodes most often are."""
FILE: Final = "assumed.csv"
_HEAD: Final = ("product", "gpus", "nodes", "node_type", "is_guess")


@dataclass(frozen=True, slots=True)
class NodeKind:
    """What the API server says of a node's GPUs."""

    product: str
    gpus: int

    def of_nodes(self, nodes: int) -> str:
        """Return so many nodes of this kind, in words."""
        return (
            f"{nodes} {'node' if nodes == 1 else 'nodes'} with {self.gpus} × {self.product or 'GPUs without a label'}"
        )


@dataclass(frozen=True, slots=True)
class Assumption:
    """A node type that nobody published, for all nodes of one kind."""

    kind: NodeKind
    nodes: int
    node_type: str
    """A machine of the catalogue, or a file."""
    is_guess: bool
    """Whether the user did not say so."""

    @property
    def subject(self) -> str:
        """Which nodes these are, in words."""
        return self.kind.of_nodes(self.nodes)


@dataclass(frozen=True, slots=True)
class NodeTypes:
    """What to assume of nodes without an agent."""

    given: Mapping[str, str] = field(default_factory=dict)
    """Pattern of a product → a machine of the catalogue, or a file with a topology; the first that matches counts."""

    @classmethod
    def parse(cls, words: Iterable[str]) -> NodeTypes:
        """Read `PRODUCT=NODE_TYPE` as users write it; raises `BadTrace`."""
        given = dict[str, str]()
        for word in words:
            product, equals, node_type = word.partition("=")
            if not (product and equals and node_type):
                raise BadTrace(
                    f"--node-type {word!r}: write PRODUCT=NODE_TYPE, such as 'NVIDIA-A100-SXM4-80GB=dgx-a100'"
                )
            given[product] = node_type
        return cls(given)

    def of(self, kinds: Mapping[NodeKind, int]) -> dict[Assumption, NodeTopology]:
        """Return what is assumed of these kinds of nodes, with the topologies.

        Args:
            kinds: Kind → how many nodes have it.

        Raises:
            BadTrace: A node type is unknown, has another number of GPUs, or is given for a product that no node has.

        """
        assumed = dict[Assumption, NodeTopology]()
        unused = set(self.given)
        for kind, nodes in kinds.items():
            given = next((pattern for pattern in self.given if fnmatchcase(kind.product, pattern)), None)
            if given is not None:
                unused.discard(given)
                assumption = Assumption(kind, nodes, self.given[given], is_guess=False)
                assumed[assumption] = _given(assumption)
            elif node_type := _guess(kind):
                assumed[Assumption(kind, nodes, node_type, is_guess=True)] = machine(node_type)
        if unused:
            products = ", ".join(sorted({kind.product or "no label" for kind in kinds})) or "none"
            raise BadTrace(
                f"--node-type {min(unused)}: no node without an agent has this product; there are: {products}"
            )
        return assumed


def _guess(kind: NodeKind) -> str | None:
    product = kind.product.lower()
    matches = (
        name for (glob, gpus), name in GUESSES.items() if gpus == kind.gpus and fnmatchcase(product, glob.lower())
    )
    return next(matches, None)


def _given(assumption: Assumption) -> NodeTopology:
    try:
        topology = load_topology(assumption.node_type)
    except UnreadableSource as unreadable:
        raise BadTrace(f"--node-type {assumption.kind.product}: {unreadable}") from unreadable
    if len(topology) != assumption.kind.gpus:
        raise BadTrace(
            f"--node-type {assumption.kind.product}: {assumption.node_type} has {len(topology)} GPUs, and such nodes "
            f"have {assumption.kind.gpus}"
        )
    return topology


def write_assumptions(folder: Path, assumptions: Sequence[Assumption]) -> None:
    """Keep next to a trace what is assumed of its nodes."""
    rows = [(*astuple(item.kind), item.nodes, item.node_type, int(item.is_guess)) for item in assumptions]
    with (folder / FILE).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([_HEAD, *rows])


def read_assumptions(folder: Path) -> tuple[Assumption, ...]:
    """Return what is assumed of a trace's nodes; nothing where the folder does not say so. Raises `BadTrace`."""
    path = folder / FILE
    if not path.is_file():
        return ()
    with path.open(newline="", encoding="utf-8") as file:
        try:
            return tuple(
                Assumption(
                    NodeKind(row["product"], int(row["gpus"])),
                    int(row["nodes"]),
                    row["node_type"],
                    row["is_guess"] == "1",
                )
                for row in csv.DictReader(file)
            )
        except (KeyError, TypeError, ValueError) as broken:
            raise BadTrace(f"{path}: {broken}") from broken
