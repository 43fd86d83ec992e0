"""A cluster as it is now, as a trace: what `kubectl get nodes,pods -o json` says becomes a folder in the form of openb.

Nodes with GPUs are kept, less the CPU and memory that pods without GPUs hold there, and with the wires that their agents
published. Nodes without an agent get those of their node type, which the user names or which is guessed. Pods that request
whole GPUs are kept, waiting or running. Their names stay; nothing else of them is written.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from math import ceil
from pathlib import Path

from benchmarks.placement.traces.files import BadTrace
from benchmarks.placement.traces.node_types import Assumption, NodeKind, NodeTypes, write_assumptions
from extender.cluster.objects.gpu_pods import has_ended
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.objects.quantities import quantity, requests
from extender.kubectl.snapshot import SelectingSpec, Snapshot, Unreadable
from topology.annotations import keys
from topology.annotations.codec import decode_topology, encode_topology
from topology.annotations.status_codec import decode_status
from topology.errors import PayloadError
from topology.node.model import NodeTopology
from topology.request.suitability import anonymous

PRODUCT_LABEL = "nvidia.com/gpu.product"
"""NVIDIA's feature discovery names the GPUs of a node by it, and pods select by it."""
NODE_LIST, POD_LIST = "node_list.csv", "pod_list_now.csv"
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class SnapshotSize:
    """What a folder holds."""

    nodes: int
    """Those with GPUs."""
    pods: int
    """Those that request GPUs."""
    assumptions: tuple[Assumption, ...] = ()
    """What is assumed of nodes without an agent."""


def write_snapshot(
    nodes: Path,
    pods: Path,
    folder: Path,
    resource: str = keys.GPU_RESOURCE,
    node_types: NodeTypes | None = None,
) -> SnapshotSize:
    """Write the folder and return what it holds; both files may be one. Raises `BadTrace`.

    `node_types`: what to assume of nodes without an agent; guesses by default.
    """
    found_pods = _read(pods)
    found_nodes = found_pods if nodes == pods else _read(nodes)
    all_pods = [pod for pod in found_pods.pods if not has_ended(pod)]
    gpu_nodes = [node for node in found_nodes.nodes if _amount(node, resource)]
    if not gpu_nodes:
        raise BadTrace(f"{nodes}: no node has {resource}")
    models = {node.metadata.name: _model(node) for node in gpu_nodes}
    beside = [pod for pod in all_pods if not _asked(pod).get(resource)]
    left = [(node.metadata.name, *_left(node, beside), _amount(node, resource)) for node in gpu_nodes]
    published = {node.metadata.name: _wires(node, _amount(node, resource)) for node in gpu_nodes}
    kinds = {
        node.metadata.name: NodeKind(models[node.metadata.name], _amount(node, resource))
        for node in gpu_nodes
        if keys.TOPOLOGY not in (node.metadata.annotations or {})
    }
    assumed = (node_types or NodeTypes()).of(Counter(kinds.values()))
    by_kind = {assumption.kind: topology for assumption, topology in assumed.items()}
    wires = published | {name: by_kind.get(kind) for name, kind in kinds.items()}
    found = [
        (pod.metadata.name, *_cpu_and_memory([pod]), gpus, 1000, "|".join(_welcome(pod, sorted({*models.values()}))))
        for pod in all_pods
        if (gpus := int(_asked(pod).get(resource, 0)))
    ]
    # Whatever cannot be read has been refused by now, before anything is written.
    folder.mkdir(parents=True, exist_ok=True)
    machines = _write_machines(folder, wires)
    offered = [(name, *amounts, models[name], machines.get(name, "")) for name, *amounts in left]
    _write(folder / NODE_LIST, ("sn", "cpu_milli", "memory_mib", "gpu", "model", "topology"), offered)
    _write(folder / POD_LIST, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"), found)
    if assumed:
        write_assumptions(folder, [*assumed])
    return SnapshotSize(len(gpu_nodes), len(found), tuple(assumed))


def _read(path: Path) -> Snapshot:
    try:
        return Snapshot.read(path)
    except Unreadable as error:
        raise BadTrace(f"{error}; `kubectl gputopo snapshot` and kubectl get … -o json write what is needed") from error


def _write(path: Path, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def _wires(node: Node, gpus: int) -> NodeTopology | None:
    """Return what the node's agent published, less its sick GPUs; `None` where that is not as many as the node offers."""
    annotations = node.metadata.annotations or {}
    if keys.TOPOLOGY not in annotations:
        return None
    try:
        published = decode_topology(annotations[keys.TOPOLOGY])
        sick = decode_status(annotations[keys.STATUS]).unhealthy if keys.STATUS in annotations else frozenset[str]()
    except PayloadError as broken:
        raise BadTrace(f"node {node.metadata.name}: {broken.path}: {broken.reason}") from broken
    wires = published if len(published) == gpus else _without(published, sick)
    return wires if len(wires) == gpus else None


def _without(node: NodeTopology, uuids: Collection[str]) -> NodeTopology:
    kept = {gpu.index for gpu in node.gpus if gpu.uuid not in uuids}
    return replace(
        node,
        gpus=tuple(gpu for gpu in node.gpus if gpu.index in kept),
        links=tuple(link for link in node.links if {link.a, link.b} <= kept),
        nics=tuple(replace(nic, paths=tuple(path for path in nic.paths if path[0] in kept)) for nic in node.nics),
    )


def _write_machines(folder: Path, wires: Mapping[str, NodeTopology | None]) -> dict[str, str]:
    """Write each kind of machine once, and return node → its file."""
    files, found = dict[NodeTopology, str](), dict[str, str]()
    for name, published in wires.items():
        if published is None:
            continue
        machine = anonymous(published)
        if machine not in files:
            files[machine] = f"machine-{len(files) + 1}.json"
            (folder / files[machine]).write_text(encode_topology(machine), encoding="utf-8")
        found[name] = files[machine]
    return found


def _model(node: Node) -> str:
    return (node.metadata.labels or {}).get(PRODUCT_LABEL, "")


def _amount(node: Node, resource: str) -> int:
    try:
        return int(quantity((node.status.allocatable or {}).get(resource, "0")))
    except ValueError as wrong:
        raise BadTrace(f"node {node.metadata.name}: {resource}: {wrong}") from wrong


def _left(node: Node, beside: Sequence[Pod]) -> tuple[int, int]:
    """Return milli CPU and MiB that pods with GPUs may have together."""
    allocatable = node.status.allocatable or {}
    try:
        cpu, memory = (quantity(allocatable.get(resource, "0")) for resource in ("cpu", "memory"))
    except ValueError as wrong:
        raise BadTrace(f"node {node.metadata.name}: allocatable: {wrong}") from wrong
    cpu_milli, memory_mib = _cpu_and_memory([pod for pod in beside if pod.spec.node_name == node.metadata.name])
    return max(0, int(1000 * cpu) - cpu_milli), max(0, int(memory / _MIB) - memory_mib)


def _cpu_and_memory(pods: Sequence[Pod]) -> tuple[int, int]:
    asked = [_asked(pod) for pod in pods]
    cpu, memory = (
        sum((each.get(resource, Fraction()) for each in asked), Fraction()) for resource in ("cpu", "memory")
    )
    return ceil(1000 * cpu), ceil(memory / _MIB)


def _asked(pod: Pod) -> Mapping[str, Fraction]:
    try:
        return {resource: Fraction(amount) for resource, amount in requests(pod).items()}
    except ValueError as wrong:
        raise BadTrace(f"pod {pod.metadata.namespace}/{pod.metadata.name}: {wrong}") from wrong


def _welcome(pod: Pod, models: Sequence[str]) -> list[str]:
    """Return the models that will do; none: any. Patterns are written out, as far as there are such nodes."""
    selector = pod.spec.node_selector if isinstance(pod.spec, SelectingSpec) else None
    selected = (selector or {}).get(PRODUCT_LABEL)
    if selected is not None:
        return [selected]
    patterns = (pod.metadata.annotations or {}).get(keys.GPU_MODEL)
    if patterns is None:
        return []
    globs = [glob.strip().lower() for glob in patterns.split(",")]
    return [model for model in models if any(fnmatchcase(model.lower(), glob) for glob in globs)] or [patterns]
