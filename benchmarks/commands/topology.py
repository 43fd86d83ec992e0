"""`show`, `plan`, `value` and `list`: one node's topology, and what is chosen on it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.commands.answers import OUTPUT, AnswerFormat, OutputOption, print_json, refuse, reply
from benchmarks.commands.sharing import claimed_gib, shares_of
from benchmarks.performance.machine import describe_machine
from benchmarks.sources import UnreadableSource, load_topology
from benchmarks.worth import describe_value, explain_value
from topology.annotations.codec import encode_topology
from topology.annotations.measurements import decode_measurements
from topology.bandwidth.predict import Bandwidth
from topology.bandwidth.rings import members_of
from topology.effort import finish
from topology.errors import PayloadError
from topology.formats.catalog import MACHINES
from topology.formats.matrix import describe_gaps, print_matrix
from topology.formats.render import render_svg
from topology.node.architectures import architecture_of
from topology.node.links import Affinity
from topology.node.model import NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.shares import NO_SHARES
from topology.placement.topology_class import TopologyClass
from topology.placement.topology_classes import figures_of
from topology.placement.verdict import Placement, Rejection
from topology.request.gpu_request import GpuRequest
from topology.value.score import Weights

Source = Annotated[
    str, typer.Argument(help="A topo -m text, NCCL XML, topology annotation, catalogue name, or - for stdin.")
]
GpuModel = Annotated[str | None, typer.Option("--gpu-model", help="Name of the GPUs where the source does not say.")]


class ShowFormat(StrEnum):
    """What `show` prints."""

    TEXT = "text"
    MATRIX = "matrix"
    """The same."""
    JSON = "json"
    SVG = "svg"
    ANNOTATION = "annotation"


class PlanFormat(StrEnum):
    """What `plan` prints."""

    TEXT = "text"
    JSON = "json"
    SVG = "svg"


class RequiredAffinity(StrEnum):
    """The words of the pod annotation."""

    NVLINK = Affinity.NVLINK
    PCIE_SWITCH = Affinity.PCIE_SWITCH
    NUMA_NODE = Affinity.NUMA_NODE


def _finite(number: float | None) -> float | None:
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter(f"{number} is no finite number")
    return number


def show(
    source: Source,
    gpu_model: GpuModel = None,
    output: Annotated[ShowFormat, OUTPUT] = ShowFormat.TEXT,
) -> None:
    """Show the topology of a node. It prints a matrix, JSON, a picture, or the annotation of a simulated node."""
    node = _load(source, gpu_model)
    match output:
        case ShowFormat.TEXT | ShowFormat.MATRIX:
            print(print_matrix(node), end="")
        case ShowFormat.SVG:
            print(render_svg(node), end="")
        case ShowFormat.ANNOTATION:
            print(encode_topology(node))
        case ShowFormat.JSON:
            print_json(_described(node))


def plan_gpus(
    source: Source,
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="How many GPUs the pod requests.")] = None,
    gpu_memory: Annotated[
        int | None, typer.Option("--gpu-memory-gib", min=1, help="Instead: GiB of one GPU that the pod requests.")
    ] = None,
    shared: Annotated[
        str | None, typer.Option("--shared", help="GiB that others use, by index of the GPU: 0=60,3=20.")
    ] = None,
    reserve: Annotated[int, typer.Option("--reserve-gib", min=0, help="GiB of each GPU that the driver keeps.")] = 0,
    free: Annotated[
        str | None, typer.Option("--free", help="Indexes of the free GPUs, 0,1,4-7; default all not shared.")
    ] = None,
    gpu_model: GpuModel = None,
    required_affinity: Annotated[
        RequiredAffinity | None, typer.Option("--required-affinity", help="Of every hop of the ring, at least.")
    ] = None,
    min_bandwidth: Annotated[
        float | None, typer.Option("--min-bandwidth", min=0.0, callback=_finite, help="GB/s.")
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option("--measured", help="Measured bandwidths to use instead of predictions, from `measure`."),
    ] = None,
    output: Annotated[PlanFormat, OUTPUT] = PlanFormat.TEXT,
) -> None:
    """Choose the best GPUs of one node for a pod. For a share it chooses one GPU. Exit 1 if none fits.

    A single GPU has no affinity and no bandwidth: both are null in the JSON.
    """
    if (gpus is None) == (gpu_memory is None):
        refuse("a pod asks for --gpus or for --gpu-memory-gib, one of them")
    if gpu_memory is not None and (required_affinity or min_bandwidth):
        refuse("--required-affinity and --min-bandwidth say nothing of a share of one GPU")
    node = _load(source, gpu_model)
    request = replace(
        GpuRequest.plain(gpus or 0),
        required=Affinity(required_affinity) if required_affinity else None,
        min_bandwidth_gb_per_s=min_bandwidth or None,
        memory_gib=(gpu_memory,) if gpu_memory else (),
    )
    claimed = claimed_gib(node, shared)
    mask = _free_mask(node, free)
    of_shared = sum(1 << position for position in claimed)
    if free is not None and mask & of_shared:
        refuse(f"--free {free!r}: a GPU of --shared is not free")
    mask &= ~of_shared
    topology_class = TopologyClass(node)
    if measured:
        _stand_on(topology_class, measured)
    finish(topology_class.appraise(topology_class.weights))
    shares = shares_of(node, mask, claimed, reserve) if gpu_memory else NO_SHARES
    verdict = decide(Situation(topology_class, mask, shares=shares), request)
    if output is PlanFormat.SVG:
        print(render_svg(node, members_of(mask), verdict.gpus if isinstance(verdict, Placement) else None), end="")
    else:
        reply(AnswerFormat(output), *_verdict(node, verdict, request))
    if not isinstance(verdict, Placement):
        raise typer.Exit(1)


def _stand_on(topology_class: TopologyClass, file: Path) -> None:
    """Take the figures of a file for this machine; what is wrong with some of them goes to stderr."""
    try:
        read = decode_measurements(file.read_bytes())
    except (OSError, PayloadError) as error:
        refuse(f"{file}: {error.strerror if isinstance(error, OSError) else error}")
    topology_class.measured(figures_of(topology_class, read.measurements))
    sets = topology_class.measured_sets
    refused = [f"{each.reason} @ GPUs {','.join(map(str, each.gpus))}" for each in (sets.refused if sets else ())]
    if sets is None:
        refused.append(f"no figures for this kind of machine, {topology_class.kind}")
    for complaint in (*read.refused, *refused):
        typer.echo(f"warning: {file}: {complaint}", err=True)


def _verdict(node: NodeTopology, verdict: Placement | Rejection, request: GpuRequest) -> tuple[dict[str, Any], str]:
    """Return the answer as JSON and in words."""
    if isinstance(verdict, Rejection):
        return {"fits": False, "reason": verdict.on_this_node}, f"does not fit: {verdict.on_this_node}"
    indexes = [node.gpus[position].index for position in verdict.gpus]
    if request.is_share:
        gib = sum(request.memory_gib)
        return {"fits": True, "gpus": indexes, "memory_gib": gib}, f"GPU {indexes[0]}: {gib} GiB of it"
    bandwidth = verdict.bandwidth
    answer = {
        "fits": True,
        "gpus": indexes,
        "affinity": verdict.affinity,
        "bandwidth_gb_per_s": bandwidth and _spelled(bandwidth),
    }
    how = " measured" if bandwidth and bandwidth.measured else ""
    rate = f", {bandwidth.point:.0f} GB/s{how} ({bandwidth.low:.0f} to {bandwidth.high:.0f})" if bandwidth else ""
    return answer, f"GPUs {' '.join(map(str, indexes))}: {verdict.affinity or 'one GPU'}{rate}"


def _spelled(bandwidth: Bandwidth) -> dict[str, Any]:
    measured = {"measured": True} if bandwidth.measured else {}
    return {"low": bandwidth.low, "point": bandwidth.point, "high": bandwidth.high, **measured}


def value(
    source: Source,
    free: Annotated[str | None, typer.Option("--free", help="Indexes of the free GPUs, 0,1,4-7; default all.")] = None,
    demand: Annotated[
        str | None,
        typer.Option("--demand", help="Future pods by size, 1:0.4,2:0.35,4:0.25; default the built-in mix."),
    ] = None,
    gpu_model: GpuModel = None,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Show what free GPUs are worth to future pods. It also shows what placing a pod of each size would cost."""
    node = _load(source, gpu_model)
    answer = explain_value(node, _free_mask(node, free), Weights(demand=_demand(demand)) if demand else Weights())
    reply(output, answer, describe_value(answer))


def _demand(text: str) -> tuple[tuple[int, float], ...]:
    pairs = [re.fullmatch(r"([1-9]\d?):(\d*\.?\d+)", part.strip()) for part in text.split(",")]
    shares = {int(pair[1]): float(pair[2]) for pair in pairs if pair is not None}
    if None in pairs or not sum(shares.values()):
        refuse(f"--demand {text!r}: no list of size:share such as 1:0.4,2:0.35,4:0.25")
    return tuple((size, share / sum(shares.values())) for size, share in sorted(shares.items()))


def list_machines(output: OutputOption = AnswerFormat.TEXT) -> None:
    """List the node types of the catalogue."""
    rows = [
        {"machine": name, "gpus": len(entry.build()), "description": entry.description}
        for name, entry in MACHINES.items()
    ]
    lines = [f"{row['machine']:<28}{row['gpus']:>3} GPUs  {row['description']}" for row in rows]
    reply(output, {"rows": rows, "machine": describe_machine()}, "\n".join(lines))


def _load(source: str, gpu_model: str | None) -> NodeTopology:
    if gpu_model is not None and architecture_of(gpu_model) is None:
        refuse(f"--gpu-model {gpu_model!r}: no GPU that we know; `nvidia-smi -L` prints the name")
    try:
        node = load_topology(source, gpu_model, lambda what: typer.echo(f"warning: {what}", err=True))
    except UnreadableSource as unreadable:
        refuse(str(unreadable))
    if gaps := describe_gaps(node):
        typer.echo(f"warning: {source} is partial: {gaps} are not shown, and stand as ? in a matrix", err=True)
    return node


def _free_mask(node: NodeTopology, free: str | None) -> int:
    """Read `0,1,4-7` as indexes of the node's GPUs."""
    if free is None:
        return (1 << len(node)) - 1
    mask = 0
    for part in filter(None, free.split(",")):
        span = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip())
        if span is None:
            refuse(f"--free {free!r}: {part!r} is neither a GPU index nor a range such as 4-7")
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first:
            refuse(f"--free {free!r}: {part!r} runs backwards")
        for index in range(first, last + 1):
            if index not in node.positions:
                refuse(f"--free {free!r}: the node has no GPU {index}")
            mask |= 1 << node.positions[index]
    return mask


def _described(node: NodeTopology) -> dict[str, Any]:
    gpus = [
        {
            "index": gpu.index,
            "model": gpu.model,
            "numa_node": gpu.numa_node,
            "uuid": gpu.uuid,
            "memory_bytes": gpu.memory_bytes,
            "pci": gpu.pci,
            "compute_capability": gpu.compute_capability and ".".join(map(str, gpu.compute_capability)),
            "switch_links": gpu.switch_links,
        }
        for gpu in node.gpus
    ]
    nics = [
        {
            "name": nic.name,
            "device": nic.device,
            "pci": nic.pci,
            "numa_node": nic.numa_node,
            "paths": {str(index): path.label for index, path in nic.paths},
        }
        for nic in node.nics
    ]
    return {"gpus": gpus, "matrix": node.matrix, "nics": nics}
