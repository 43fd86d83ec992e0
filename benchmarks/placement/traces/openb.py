"""Alibaba's trace of a cluster with shared GPUs (cluster-trace-gpu-v2023, "openb"), in the columns of FGD's artefact.

`*node_list*.csv`: sn, cpu_milli, memory_mib, gpu, model. `*pod_list_NAME.csv`, one for each workload: name, cpu_milli, num_gpu,
gpu_milli, and memory_mib and gpu_spec, which may be missing. That trace says nothing of links, so neither do its nodes.
Another may have a column `topology`, with a machine of the catalogue or a file in the folder. That file has any form that
`gputopo-bench show` reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from benchmarks.placement.cluster import ServerSpec
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.traces.files import MOST_GPUS, BadTrace, read_rows, tables, whole
from benchmarks.placement.traces.lookalikes import like
from benchmarks.sources import UnreadableSource, load_topology
from topology.formats.catalog import MACHINES
from topology.node.model import MAX_GPUS, Gpu, NodeTopology
from topology.value.fragmentation import WHOLE_GPU_MILLI

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("cpu_milli", "num_gpu", "gpu_milli")


@dataclass(frozen=True, slots=True)
class OpenbTrace:
    """A folder with one cluster and any number of pod lists."""

    folder: Path

    @property
    def workloads(self) -> tuple[str, ...]:
        """The names of the pod lists."""
        found = tuple(_pod_lists(self.folder))
        if not found:
            raise BadTrace(f"{self.folder} holds no file *pod_list_NAME.csv or .csv.gz")
        return found

    def servers(self) -> tuple[ServerSpec, ...]:
        """Return the nodes with GPUs, in the order of the file; there is at least one.

        Several lists may have the same nodes, as the two that Alibaba publishes. Nodes without GPUs are left out of one
        and those with GPUs have new numbers. The first by name counts.
        """
        lists = [path for name, path in tables(self.folder, "*.csv").items() if "node_list" in name]
        if not lists:
            raise BadTrace(f"{self.folder} holds no file *node_list*.csv or .csv.gz")
        first, *others = lists
        for other in others:
            if _nameless(_read_servers(other)) != _nameless(_read_servers(first)):
                raise BadTrace(f"{self.folder} holds two clusters: {first.name} and {other.name}")
        return _read_servers(first)

    def pods(self, workload: str) -> tuple[PodSize, ...]:
        """Return the pods of a workload, in the order of the file; at least one asks for a GPU.

        `LIST/MIX`: as many as the list has, drawn from it for that mix, see `like`.
        """
        lists = _pod_lists(self.folder)
        name, _, mix = workload.partition("/")
        if name not in lists:
            raise BadTrace(f"{self.folder} holds no list of pods {name!r}; it has {', '.join(lists)}")
        return like(_read_pods(lists[name]), mix) if mix else _read_pods(lists[name])


def _pod_lists(folder: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name, path in tables(folder, "*.csv").items():
        _, is_list, workload = name.rpartition("pod_list_")
        if is_list and workload in found:
            raise BadTrace(f"{folder} holds two lists of pods {workload!r}: {found[workload].name} and {path.name}")
        if is_list:
            found[workload] = path
    return found


@cache
def _read_servers(path: Path) -> tuple[ServerSpec, ...]:
    read = read_rows(path, NODE_COLUMNS, partial(_server, path.parent))
    found = tuple(server for server in read if len(server.topology))
    if not found:
        raise BadTrace(f"{path} has no node with GPUs")
    return found


@cache
def _read_pods(path: Path) -> tuple[PodSize, ...]:
    found = tuple(read_rows(path, POD_COLUMNS, _pod))
    if not any(pod.gpus for pod in found):
        raise BadTrace(f"{path} has no pod that asks for a GPU")
    return found


def _nameless(servers: Iterable[ServerSpec]) -> Counter[ServerSpec]:
    return Counter(replace(server, name="") for server in servers)


def _server(folder: Path, row: dict[str, str]) -> ServerSpec:
    gpus = whole(row, "gpu", MAX_GPUS)
    wires = row.get("topology")
    topology = _wired(folder, wires) if wires else _unlinked(gpus, row["model"])
    if len(topology) != gpus:
        raise ValueError(f"{gpus} GPUs on a node, and {len(topology)} in its topology {wires}")
    return ServerSpec(row["sn"], topology, whole(row, "cpu_milli"), whole(row, "memory_mib"), row["model"])


def _pod(row: dict[str, str]) -> PodSize:
    gpus = whole(row, "num_gpu", MOST_GPUS)
    milli = whole(row, "gpu_milli") if gpus else WHOLE_GPU_MILLI
    if not 0 < milli <= WHOLE_GPU_MILLI:
        raise ValueError(f"{milli} milli of a GPU")
    if gpus > 1 and milli < WHOLE_GPU_MILLI:
        raise ValueError(f"a share of {gpus} GPUs at once")
    models = tuple(word.strip() for word in row.get("gpu_spec", "").split("|") if word.strip())
    memory_mib = whole(row, "memory_mib") if "memory_mib" in row else 0
    return PodSize(gpus, milli, whole(row, "cpu_milli"), memory_mib, models)


@cache
def _wired(folder: Path, source: str) -> NodeTopology:
    """Return a node of the catalogue, or of a file in the folder."""
    try:
        return load_topology(source if source in MACHINES else str(folder / source))
    except UnreadableSource as unreadable:
        raise ValueError(str(unreadable)) from unreadable


@cache
def _unlinked(gpus: int, model: str) -> NodeTopology:
    """Return a node of whose wires nothing is known."""
    return NodeTopology(tuple(Gpu(index, f"GPU-{index}", model) for index in range(gpus)))
