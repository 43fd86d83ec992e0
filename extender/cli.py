"""`kubectl gputopo`: who has which GPUs and why a pod waits.

A running extender is asked where its URL is given, for example after `kubectl port-forward` to its port. Otherwise, or where it
does not answer, the same code decides here from the annotations alone: an estimate, since only the extender knows which GPUs it
holds between prioritize and bind. That needs `list` on nodes and pods and nothing of ours that runs. Exit codes: 0 yes, 1 a clear
no (the pod fits nowhere, there is no such node), 2 wrong usage or no cluster.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar

import typer

from extender import asking
from extender.clock import Instant
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.inspect.inspection import BandwidthInfo, BestSet, Explanation, GpuInfo, NodeDetail, NodeInfo, NodeList
from extender.kubernetes.documents import BrokenStream, decoder
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Expired, Unavailable, list_objects
from extender.logs import printable
from topology.annotations import keys


class Output(StrEnum):
    """How to print."""

    TABLE = "table"
    JSON = "json"


Format = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
File = Annotated[Path | None, typer.Option("--kubeconfig", help="Instead of $KUBECONFIG or ~/.kube/config.")]
Context = Annotated[str | None, typer.Option(help="Instead of the kubeconfig's current context.")]
Resource = Annotated[str, typer.Option(help="The resource that counts GPUs.")]
Url = Annotated[
    str | None, typer.Option("--extender", envvar="GPUTOPO_EXTENDER", help="URL of a running extender, to ask it.")
]
Answer = TypeVar("Answer")

APPRAISE_SECONDS: Final = 2.0
"""For the values of free GPUs, which break ties; a machine of many unlike sets would take a minute, and keeps the formula."""

app = typer.Typer(
    name="kubectl gputopo",
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
def nodes(
    output: Format = Output.TABLE,
    file: File = None,
    context: Context = None,
    resource: Resource = keys.GPU_RESOURCE,
    extender: Url = None,
) -> None:
    """List the nodes with GPUs, and how many are free."""

    def estimate() -> NodeList:
        state = _load(_kubeconfig(file, context), resource)
        return NodeList(nodes=tuple(inspection.nodes(state, inspection.node_names(state), _now())))

    listed = _answer(extender, asking.nodes, estimate)
    if output is Output.JSON:
        _print_json(listed)
        return
    _print_table(
        ("NAME", "MACHINE", "GPUS", "FREE", "NOTE"),
        ((node.name, _machine(node), str(len(node.gpus)), str(node.free), node.closed or "") for node in listed.nodes),
    )


@app.command()
def node(
    name: str,
    output: Format = Output.TABLE,
    file: File = None,
    context: Context = None,
    resource: Resource = keys.GPU_RESOURCE,
    extender: Url = None,
) -> None:
    """Show one node: its wires, who has its GPUs, and what the free ones are worth together."""
    detail = _answer(
        extender,
        lambda url: asking.node(url, name),
        lambda: inspection.node(_load(_kubeconfig(file, context), resource), name, _now()),
    )
    if detail is None:
        _say_no(f"no node {name}")
    if output is Output.JSON:
        _print_json(detail)
    else:
        _print_node(detail)


@app.command()
def pod(
    name: str,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Instead of the context's namespace.")
    ] = None,
    output: Format = Output.TABLE,
    file: File = None,
    context: Context = None,
    resource: Resource = keys.GPU_RESOURCE,
    extender: Url = None,
) -> None:
    """Show one pod: the GPUs that it has, or where it could go now and why not elsewhere."""
    within = namespace or _kubeconfig(file, context).namespace
    told = _answer(
        extender,
        lambda url: asking.explain(url, within, name),
        lambda: _estimated(inspection.explain(_load(_kubeconfig(file, context), resource), within, name, _now())),
    )
    if told is None:
        _say_no(f"no pod {within}/{name} asks for {resource}")
    if output is Output.JSON:
        _print_json(told)
    else:
        _print_pod(told)
    if told.pod.node is None and not told.fits:
        raise typer.Exit(1)


def main() -> None:
    """Run the command line."""
    app(prog_name="kubectl gputopo")


def _answer(extender: str | None, ask: Callable[[str], Answer], estimate: Callable[[], Answer]) -> Answer:
    """Ask the extender, and decide here where that cannot be."""
    if extender:
        try:
            return ask(extender)
        except asking.NoAnswer as error:
            why = f"the extender at {extender} does not answer: {error}; this is an estimate from the annotations alone"
            print(printable(why), file=sys.stderr)
    return estimate()


def _estimated(told: Explanation | None) -> Explanation | None:
    return told and told.model_copy(update={"estimate": told.pod.node is None})


def _kubeconfig(file: Path | None, context: str | None) -> Kubeconfig:
    try:
        return Kubeconfig.find(file, context, os.environ)
    except Unavailable as error:
        _fail(str(error))


def _load(kubeconfig: Kubeconfig, resource: str) -> ClusterState:
    try:
        state = asyncio.run(_read(kubeconfig, resource))
    except (Unavailable, BrokenStream, Expired) as error:
        _fail(str(error) or "the list expired, try again")
    until = time.monotonic() + APPRAISE_SECONDS
    for _ in state.values.appraise():
        if time.monotonic() > until:
            break
    return state


async def _read(kubeconfig: Kubeconfig, resource: str) -> ClusterState:
    state = ClusterState(resource=resource)
    pods = PodFeed(state)
    async with KubeApi.from_kubeconfig(kubeconfig.files, kubeconfig.context) as api:
        found_nodes, found_pods = await asyncio.gather(
            list_objects(api.resource("/api/v1/nodes"), decoder(Node)),
            list_objects(api.resource("/api/v1/pods"), decoder(Pod), pods.keep),
        )
    state.nodes.replaced(found_nodes.objects)
    pods.replaced(found_pods.objects)
    return state


def _print_node(node: NodeDetail) -> None:
    print(f"{node.name}: {_machine(node)}" + (f"; closed: {printable(node.closed)}" if node.closed else ""))
    print(f"device plugin: {printable(node.device_plugin.line)}\n" if node.device_plugin else "")
    labels = [f"GPU{gpu.index}" for gpu in node.gpus]
    _print_table(("", *labels), ((label, *row) for label, row in zip(labels, node.matrix, strict=False)))
    print()
    _print_table(("GPU", "STATE", "POD", "CONTAINER", "NUMA", "UUID", "REASON"), map(_gpu_row, node.gpus))
    print()
    _print_table(("BEST-OF", "GPUS", "AFFINITY", "PREDICTED-GB/S"), map(_set_row, node.best_sets))


def _print_pod(told: Explanation) -> None:
    pod = told.pod
    print(f"{pod.namespace}/{pod.name}: " + _whereabouts(told), end="\n\n")
    if told.problem:
        print(printable(told.problem))
    elif pod.node:
        placed = (_ring(pod.indexes), pod.affinity or "", _predicted(pod.bandwidth_gb_per_s))
        _print_table(("GPUS", "AFFINITY", "PREDICTED-GB/S"), [placed])
    else:
        if told.group:
            print(printable(told.group.line), end="\n\n")
        _print_table(
            ("NODE", "SCORE", "BEST-OF", "GPUS", "AFFINITY", "PREDICTED-GB/S"),
            ((fit.node, f"{fit.score:.3f}", *_set_row(fit)) for fit in told.fits),
        )
        print()
        _print_table(
            ("NODES", "REFUSED-BECAUSE", "FOR-EXAMPLE", "WHERE", "WHAT-WOULD-HELP"),
            (
                (str(refusal.nodes), refusal.message, refusal.example, refusal.figures, refusal.remedy)
                for refusal in told.refusals
            ),
        )


def _whereabouts(told: Explanation) -> str:
    if told.pod.node:
        return f"on {told.pod.node}"
    return "waits (an estimate, no extender was asked)" if told.estimate else "waits"


def _gpu_row(gpu: GpuInfo) -> Sequence[str]:
    numa = "" if gpu.numa_node is None else str(gpu.numa_node)
    return str(gpu.index), gpu.state, gpu.pod or "", gpu.container or "", numa, gpu.uuid, "; ".join(gpu.reasons)


def _set_row(best: BestSet) -> Sequence[str]:
    return str(best.gpus), _ring(best.indexes), best.affinity or "", _predicted(best.bandwidth_gb_per_s)


def _print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns as kubectl does: left aligned, three spaces between them, `<none>` for nothing."""
    lines = [heads, *([printable(cell) or "<none>" for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _print_json(value: NodeList | NodeDetail | Explanation) -> None:
    print(value.model_dump_json(indent=2))


def _fail(why: str) -> NoReturn:
    print(printable(f"cannot read the cluster: {why}"), file=sys.stderr)
    raise typer.Exit(2)


def _say_no(why: str) -> NoReturn:
    print(printable(why), file=sys.stderr)
    raise typer.Exit(1)


def _machine(node: NodeInfo) -> str:
    counts = Counter(gpu.model for gpu in node.gpus)
    return printable(", ".join(f"{count} x {model}" for model, count in counts.items())) or "<none>"


def _ring(indexes: Iterable[int]) -> str:
    return ",".join(map(str, indexes))


def _predicted(predicted: BandwidthInfo | None) -> str:
    return f"{predicted.point:.0f} ({predicted.low:.0f}-{predicted.high:.0f})" if predicted else ""


def _now() -> Instant:
    return Instant(time.monotonic(), time.time())
