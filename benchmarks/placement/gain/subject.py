"""The cluster that is asked about: a snapshot, or the trace folder that was made of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.placement.scenarios.inflation import is_wired
from benchmarks.placement.traces.files import BadTrace
from benchmarks.placement.traces.node_types import Assumption, NodeKind, NodeTypes, read_assumptions
from benchmarks.placement.traces.openb import OpenbTrace
from benchmarks.placement.traces.snapshot import write_snapshot
from topology.node.model import NodeTopology


@dataclass(frozen=True, slots=True)
class UnwiredNodes:
    """Nodes of one kind whose links are not known."""

    kind: NodeKind
    nodes: int


@dataclass(frozen=True, slots=True)
class Subject:
    """A cluster in a few numbers."""

    name: str
    nodes: int
    gpus: int
    wired_nodes: int
    """Those whose links are known."""
    pods: int
    """That ask for GPUs."""
    pods_of_several: int
    """That ask for two GPUs or more."""
    assumptions: tuple[Assumption, ...] = ()
    """What is assumed of nodes without an agent."""
    unwired: tuple[UnwiredNodes, ...] = ()
    """Those of which nothing is published or assumed."""
    is_uniform: bool = False
    """Whether the links of each node join any two of its GPUs alike."""


@contextmanager
def opened(source: Path, node_types: NodeTypes | None = None) -> Iterator[Path]:
    """Give the trace folder of a snapshot, made for the time being, or the folder itself; raises `BadTrace`."""
    if source.is_dir():
        if node_types and node_types.given:
            raise BadTrace(
                f"{source}: --node-type is for snapshots; the folder has a column `topology` of node_list.csv"
            )
        yield source
        return
    with TemporaryDirectory() as made:
        write_snapshot(source, source, Path(made), node_types=node_types)
        yield Path(made)


def subject_of(source: Path, folder: Path) -> Subject:
    """Return what the folder holds, under the name that the user gave it; raises `BadTrace`."""
    trace = OpenbTrace(folder)
    if len(trace.workloads) > 1:
        raise BadTrace(
            f"{source} holds {len(trace.workloads)} lists of pods, and this is about one cluster with its own; "
            "`gputopo-bench placement --trace` takes several"
        )
    servers = trace.servers()
    unwired = Counter(
        NodeKind(server.model, len(server.topology)) for server in servers if not is_wired(server.topology)
    )
    pods = [pod.gpus for pod in trace.pods(trace.workloads[0]) if pod.gpus]
    return Subject(
        name="".join(letter if letter.isprintable() else "?" for letter in source.name or str(source)),
        nodes=len(servers),
        gpus=sum(len(server.topology) for server in servers),
        wired_nodes=len(servers) - unwired.total(),
        pods=len(pods),
        pods_of_several=sum(gpus > 1 for gpus in pods),
        assumptions=read_assumptions(folder),
        unwired=tuple(UnwiredNodes(kind, nodes) for kind, nodes in unwired.items()),
        is_uniform=not unwired and all(_is_uniform(server.topology) for server in servers),
    )


def _is_uniform(node: NodeTopology) -> bool:
    return len({node.label(one, another) for one, another in combinations(range(len(node)), 2)}) <= 1
