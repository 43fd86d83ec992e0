"""`gputopo-bench`: look at a topology, plan on it, and measure.

Exit 0 = yes, 1 = a clear no, 2 = bad usage or input, with the reason on stderr. JSON goes to stdout alone.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from benchmarks.machine import describe_machine
from benchmarks.sources import UnreadableSource, load_topology
from benchmarks.worth import describe_value, explain_value
from topology import keys
from topology.catalog import MACHINES
from topology.codec import encode_topology
from topology.links import Affinity
from topology.market import finish
from topology.matrix import print_matrix
from topology.model import NodeTopology
from topology.placement import Placement, Rejection, TopologyClass, plan
from topology.render import render_svg
from topology.request import Communication, GpuRequest
from topology.rings import members_of
from topology.value import Weights

app = typer.Typer(add_completion=True, no_args_is_help=True, help=__doc__, rich_markup_mode=None)

Source = Annotated[str, typer.Argument(help="topo -m text, NCCL XML, topology payload, catalogue name, or - for stdin")]
GpuModel = Annotated[str | None, typer.Option("--gpu-model", help="name of the GPUs where the source does not say")]


class ShowFormat(StrEnum):
    """What `show` prints."""

    MATRIX = "matrix"
    JSON = "json"
    SVG = "svg"
    ANNOTATION = "annotation"


class PlanFormat(StrEnum):
    """What `plan` prints."""

    JSON = "json"
    TEXT = "text"
    SVG = "svg"


class ReportFormat(StrEnum):
    """What the other commands print."""

    JSON = "json"
    TEXT = "text"


class RequiredAffinity(StrEnum):
    """The words of the pod annotation."""

    NVLINK = Affinity.NVLINK
    PCIE_SWITCH = Affinity.PCIE_SWITCH
    NUMA_NODE = Affinity.NUMA_NODE


@app.command()
def show(
    source: Source,
    gpu_model: GpuModel = None,
    output: Annotated[ShowFormat, typer.Option("--output", "-o")] = ShowFormat.MATRIX,
) -> None:
    """Show a topology: as nvidia-smi prints it, as JSON, as a picture, or as the annotation of a simulated node."""
    node = _load(source, gpu_model)
    match output:
        case ShowFormat.MATRIX:
            print(print_matrix(node), end="")
        case ShowFormat.SVG:
            print(render_svg(node), end="")
        case ShowFormat.ANNOTATION:
            print(encode_topology(node))
        case ShowFormat.JSON:
            _print_json(_described(node))


@app.command(name="plan")
def plan_command(
    source: Source,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="how many GPUs the pod asks for")],
    free: Annotated[str | None, typer.Option("--free", help="indexes of the free GPUs, 0,1,4-7; default all")] = None,
    gpu_model: GpuModel = None,
    required_affinity: Annotated[RequiredAffinity | None, typer.Option("--required-affinity")] = None,
    min_bandwidth: Annotated[float | None, typer.Option("--min-bandwidth", min=0.0, help="GB/s")] = None,
    output: Annotated[PlanFormat, typer.Option("--output", "-o")] = PlanFormat.JSON,
) -> None:
    """Choose the best GPUs of one node for a pod; exit 1 when none of its free sets will do."""
    node = _load(source, gpu_model)
    request = GpuRequest(
        gpus,
        required=Affinity(required_affinity) if required_affinity else None,
        preferred=Affinity.NVLINK if gpus > 1 else None,
        min_bandwidth_gb_per_s=min_bandwidth or None,
        communication=Communication.HEAVY if gpus > 1 else Communication.NONE,
    )
    mask = _free_mask(node, free)
    topology_class = TopologyClass(node)
    finish(topology_class.appraise(topology_class.weights))
    verdict = plan(topology_class, mask, request)
    if output is PlanFormat.SVG:
        print(render_svg(node, members_of(mask), verdict.gpus if isinstance(verdict, Placement) else None), end="")
    else:
        _report(output, *_verdict(node, verdict))
    if not isinstance(verdict, Placement):
        raise typer.Exit(1)


def _verdict(node: NodeTopology, verdict: Placement | Rejection) -> tuple[dict[str, Any], str]:
    """Return the answer as JSON and in words."""
    if isinstance(verdict, Rejection):
        return {"fits": False, "reason": verdict.message}, f"does not fit: {verdict.message}"
    indexes = [node.gpus[position].index for position in verdict.gpus]
    bandwidth = verdict.bandwidth
    answer = {
        "fits": True,
        "gpus": indexes,
        "affinity": verdict.affinity,
        "bandwidth_gb_per_s": bandwidth and {"low": bandwidth.low, "point": bandwidth.point, "high": bandwidth.high},
    }
    rate = f", {bandwidth.point:.0f} GB/s ({bandwidth.low:.0f} to {bandwidth.high:.0f})" if bandwidth else ""
    return answer, f"GPUs {' '.join(map(str, indexes))}: {verdict.affinity or 'one GPU'}{rate}"


@app.command(name="value")
def value_command(
    source: Source,
    free: Annotated[str | None, typer.Option("--free", help="indexes of the free GPUs, 0,1,4-7; default all")] = None,
    demand: Annotated[
        str | None, typer.Option("--demand", help="pods to come by size, 1:0.4,2:0.35,4:0.25; default the built-in mix")
    ] = None,
    gpu_model: GpuModel = None,
    output: Annotated[ReportFormat, typer.Option("--output", "-o")] = ReportFormat.TEXT,
) -> None:
    """Say what free GPUs are worth to the pods to come, what each size of pod would take of them, and what that costs."""
    node = _load(source, gpu_model)
    answer = explain_value(node, _free_mask(node, free), Weights(demand=_demand(demand)) if demand else Weights())
    _report(output, answer, describe_value(answer))


def _demand(text: str) -> tuple[tuple[int, float], ...]:
    pairs = [re.fullmatch(r"([1-9]\d?):(\d*\.?\d+)", part.strip()) for part in text.split(",")]
    shares = {int(pair[1]): float(pair[2]) for pair in pairs if pair is not None}
    if None in pairs or not sum(shares.values()):
        _fail(f"--demand {text!r}: no list of size:share such as 1:0.4,2:0.35,4:0.25")
    return tuple((size, share / sum(shares.values())) for size, share in sorted(shares.items()))


@app.command(name="list")
def list_command(output: Annotated[ReportFormat, typer.Option("--output", "-o")] = ReportFormat.TEXT) -> None:
    """List the machines of the catalogue."""
    rows = [
        {"machine": name, "gpus": len(entry.build()), "description": entry.description}
        for name, entry in MACHINES.items()
    ]
    lines = [f"{row['machine']:<28}{row['gpus']:>3} GPUs  {row['description']}" for row in rows]
    _report(output, {"rows": rows, "machine": describe_machine()}, "\n".join(lines))


@app.command()
def demo(
    serve: Annotated[bool, typer.Option("--serve", help="stay, and leave the inspect page open")] = False,
) -> None:
    """Place pods on a simulated fleet through the real extender, next to what stock scheduling does."""
    from benchmarks.demo import run

    run(serve=serve)


@app.command()
def latency(
    nodes: Annotated[int, typer.Option("--nodes", min=1)] = 5000,
    pods: Annotated[int, typer.Option("--pods", min=1)] = 300,
    candidates: Annotated[int, typer.Option("--candidates", min=0)] = 16,
    output: Annotated[ReportFormat, typer.Option("--output", "-o")] = ReportFormat.JSON,
) -> None:
    """Measure the verbs over HTTP beside the floor of a handler that only echoes the names."""
    from benchmarks.latency import measure

    found = measure(nodes, pods, candidates)
    lines = [
        f"{row['server']:<20}{row['verb']:<12}p50 {row['p50_ms']:8.3f} ms   p99 {row['p99_ms']:8.3f} ms"
        for row in found["rows"]
    ]
    ratios = ", ".join(f"{verb} {ratio}" for verb, ratio in found["p99_ratio_to_floor"].items())
    _report(
        output, found, "\n".join([*lines, f"p99 over the floor's: {ratios}", f"ready after {found['ready_seconds']} s"])
    )


@app.command()
def bandwidth(
    measured: Annotated[Path | None, typer.Option("--measured", help="CSV table of published bandwidths")] = None,
    topologies: Annotated[
        list[Path] | None, typer.Option("--topologies", help="folder with the topologies that the table names")
    ] = None,
    more_topologies: Annotated[list[Path] | None, typer.Argument(metavar="[DIR]...", help="further folders")] = None,
    output: Annotated[ReportFormat, typer.Option("--output", "-o")] = ReportFormat.JSON,
) -> None:
    """Compare predicted bandwidth with published measurements, those it was fitted on and those that check it apart."""
    from benchmarks.bandwidth import as_text, compare, summarise
    from benchmarks.measurements import UnreadableMeasurements, default_table, read_measurements

    table = measured or default_table()
    beside = (table.parent / "machines", table.parent / "topologies", table.parent.parent / "topologies")
    folders = (*(topologies or ()), *(more_topologies or ()), *beside)
    try:
        rows = compare(read_measurements(table), folders, table)
    except (UnreadableMeasurements, UnreadableSource) as unreadable:
        _fail(str(unreadable))
    summary = summarise(rows)
    _report(output, {"rows": [row.row() for row in rows], "summary": summary}, as_text(rows, summary))


@app.command()
def placement(
    scenario: Annotated[str | None, typer.Option("--scenario", help="which experiment")] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="folder with the trace, as docs/benchmarks.md says")
    ] = None,
    workloads: Annotated[
        str | None, typer.Option("--workloads", help="some of its workloads, with commas between")
    ] = None,
    policies: Annotated[str | None, typer.Option("--policies", help="some policies, with commas between")] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="runs of each cell, with random numbers of their own")
    ] = 10,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="processes")] = os.cpu_count() or 1,
    output: Annotated[ReportFormat, typer.Option("--output", "-o")] = ReportFormat.TEXT,
) -> None:
    """Place the same jobs by the product's decision and by its peers' rules, and measure what comes of it."""
    from benchmarks.placement.command import BadExperiment, run_placement, summary
    from benchmarks.placement.policies import UnknownPolicy
    from benchmarks.placement.traces.files import BadTrace

    try:
        rows = run_placement(_scenario(scenario, trace), trace, _words(workloads), _words(policies), seeds, jobs)
    except (BadExperiment, BadTrace, UnknownPolicy) as wrong:
        _fail(str(wrong))
    _report(output, {"rows": [asdict(row) for row in rows], "machine": describe_machine()}, summary(rows))


@app.command()
def snapshot(
    folder: Annotated[Path, typer.Argument(help="where the trace goes")],
    nodes: Annotated[Path, typer.Option("--nodes", help="what `kubectl get nodes -o json` printed")],
    pods: Annotated[Path, typer.Option("--pods", help="what `kubectl get pods -A -o json` printed")],
    resource: Annotated[str, typer.Option("--resource", help="the resource that pods ask for")] = keys.GPU_RESOURCE,
) -> None:
    """Turn a cluster as it is now into a folder that `placement --trace` takes."""
    from benchmarks.placement.traces.files import BadTrace
    from benchmarks.placement.traces.snapshot import write_snapshot

    try:
        found_nodes, found_pods = write_snapshot(nodes, pods, folder, resource)
    except BadTrace as wrong:
        _fail(str(wrong))
    typer.echo(f"{found_nodes} nodes with GPUs, {found_pods} pods that ask for them: {folder}")


@app.command()
def report(
    folder: Annotated[Path, typer.Option("--folder", help="where the page goes")] = Path("reports/placement"),
    scenarios: Annotated[str | None, typer.Option("--scenarios", help="some of them, with commas between")] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="instead of what each scenario needs")] = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="do not run: take the rows.json of an earlier run")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="processes")] = os.cpu_count() or 1,
    output: Annotated[ReportFormat, typer.Option("--output", "-o")] = ReportFormat.TEXT,
) -> None:
    """Run the placement experiments and write a page with tables, figures and the raw figures beside it."""
    from benchmarks.placement.registry import SCENARIOS
    from benchmarks.placement.report.command import BadRows, measure, read_measured, write_page

    unknown = [name for name in _words(scenarios) if name not in SCENARIOS]
    if unknown:
        _fail(f"no scenario is called {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    try:
        document = read_measured(rows) if rows else measure(_words(scenarios), seeds, jobs, describe_machine())
    except BadRows as wrong:
        _fail(str(wrong))
    write_page(folder, document)
    _report(output, document, f"{folder / 'report.html'}")


def main() -> None:
    """Run the command line; output that cannot be written is no answer, and so no exit code 1."""
    try:
        app()
        sys.stdout.flush()
    except (OSError, UnicodeEncodeError) as failed:
        sys.stderr.write(f"cannot write the output: {failed}\n")
        os._exit(2)  # a further attempt to flush would fail again


def _scenario(named: str | None, trace: Path | None) -> str:
    """Return the experiment; a trace alone is taken for one in the form of FGD's."""
    if named is None and trace is None:
        _fail("name an experiment with --scenario, or a folder with --trace")
    return named or "inflation"


def _words(listed: str | None) -> list[str]:
    return [word.strip() for word in (listed or "").split(",") if word.strip()]


def _load(source: str, gpu_model: str | None) -> NodeTopology:
    try:
        return load_topology(source, gpu_model)
    except UnreadableSource as unreadable:
        _fail(str(unreadable))


def _free_mask(node: NodeTopology, free: str | None) -> int:
    """Read `0,1,4-7` as indexes of the node's GPUs."""
    if free is None:
        return (1 << len(node)) - 1
    mask = 0
    for part in filter(None, free.split(",")):
        span = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip())
        if span is None:
            _fail(f"--free {free!r}: {part!r} is no GPU index and no range")
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first:
            _fail(f"--free {free!r}: {part!r} runs backwards")
        for index in range(first, last + 1):
            if index not in node.positions:
                _fail(f"--free {free!r}: the node has no GPU {index}")
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


def _report(output: StrEnum, document: dict[str, Any], text: str) -> None:
    if output == "json":
        _print_json(document)
    else:
        print(text)


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2 if sys.stdout.isatty() else None))


def _fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise typer.Exit(2)
