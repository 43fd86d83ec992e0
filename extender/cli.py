"""`kubectl gputopo`: who has which GPUs and why a pod waits.

A running extender is asked where its URL is given, for example after `kubectl port-forward` to its port. Otherwise, or where it
does not answer, the same code decides here from the annotations alone: an estimate, since only the extender knows which GPUs it
holds between prioritize and bind. That needs `list` on nodes and pods and nothing of ours that runs.

Exit codes: 0 yes, 1 a clear no (the pod fits nowhere, there is no such node), 2 wrong usage or no cluster.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from getpass import getuser
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer

from extender import asking
from extender.clock import Instant
from extender.inspect import inspection
from extender.inspect.fragmentation import fragmentation
from extender.inspect.inspection import Explanation, NodeList
from extender.inspect.status import status
from extender.inspect.what_if import what_if
from extender.inspect.why import Why, why
from extender.kubectl import cleanup, gpu_health
from extender.kubectl.hypothetical import pod_from, pod_of, read
from extender.kubectl.output import (
    Form,
    Output,
    print_fragmentation,
    print_leftovers,
    print_measured,
    print_node,
    print_nodes,
    print_pod,
    print_status,
    print_what_if,
    print_why,
)
from extender.kubectl.reading import ask, fail, kubeconfig, load, say_no
from extender.logs import printable
from topology.annotations import keys
from topology.annotations.overrides import Override, Word

Format = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
Headless = Annotated[bool, typer.Option("--no-headers", help="Print tables without their heads.")]
File = Annotated[Path | None, typer.Option("--kubeconfig", help="Instead of $KUBECONFIG or ~/.kube/config.")]
Context = Annotated[str | None, typer.Option(help="Instead of the kubeconfig's current context.")]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Instead of the context's namespace.")]
Resource = Annotated[str, typer.Option(help="The resource that counts GPUs.")]
Url = Annotated[
    str | None, typer.Option("--extender", envvar="GPUTOPO_EXTENDER", help="URL of a running extender, to ask it.")
]
Found = TypeVar("Found")
Told = TypeVar("Told", Explanation, Why)

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
    no_headers: Headless = False,
    file: File = None,
    context: Context = None,
    resource: Resource = keys.GPU_RESOURCE,
    extender: Url = None,
) -> None:
    """List the nodes with GPUs, and how many are free."""

    def estimate() -> NodeList:
        state = load(kubeconfig(file, context), resource)
        return NodeList(nodes=tuple(inspection.nodes(state, inspection.node_names(state), _now())))

    print_nodes(_answer(extender, asking.nodes, estimate), Form(output, not no_headers))


@app.command()
def node(
    name: str,
    output: Format = Output.TABLE,
    no_headers: Headless = False,
    file: File = None,
    context: Context = None,
    resource: Resource = keys.GPU_RESOURCE,
    extender: Url = None,
) -> None:
    """Show one node: its wires, who has its GPUs, and what the free ones are worth together."""
    detail = _answer(
        extender,
        lambda url: asking.node(url, name),
        lambda: inspection.node(load(kubeconfig(file, context), resource), name, _now()),
    )
    if detail is None:
        say_no(f"no node {name}")
    print_node(detail, Form(output, not no_headers))


@app.command()
def pod(
    name: str,
    namespace: Namespace = None,
    output: Format = Output.TABLE,
    no_headers: Headless = False,
    file: File = None,
    context: Context = None,
    resource: Resource = keys.GPU_RESOURCE,
    extender: Url = None,
) -> None:
    """Show one pod: the GPUs that it has, or where it could go now and why not elsewhere."""
    within = namespace or kubeconfig(file, context).namespace

    def estimate() -> Explanation | None:
        return _as_estimate(inspection.explain(load(kubeconfig(file, context), resource), within, name, _now()))

    told = _answer(extender, lambda url: asking.explain(url, within, name), estimate)
    if told is None:
        say_no(f"no pod {within}/{name} asks for {resource}")
    print_pod(told, Form(output, not no_headers))
    _end(told)


@app.command("why")
def why_not(
    name: str,
    node: Annotated[str, typer.Option("--node", help="That node alone, GPUs or not.")] = "",
    namespace: Namespace = None,
    output: Format = Output.TABLE,
    no_headers: Headless = False,
    file: File = None,
    context: Context = None,
    resource: Resource = keys.GPU_RESOURCE,
    extender: Url = None,
) -> None:
    """Say of each node why a pod does not fit there: the rule, the numbers, and what would help."""
    within = namespace or kubeconfig(file, context).namespace

    def estimate() -> Why | None:
        state = load(kubeconfig(file, context), resource)
        return _as_estimate(why(state, within, name, _now(), node=node, limit=max(1, len(state.views))))

    told = _answer(extender, lambda url: asking.why(url, within, name, node), estimate)
    if told is None:
        say_no(f"no pod {within}/{name} asks for {resource}")
    print_why(told, Form(output, not no_headers))
    _end(told)


@app.command("what-if")
def what_would_be(
    file: Annotated[Path | None, typer.Option("-f", "--filename", help="A manifest with a pod, or `-`.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="Instead of a manifest: a pod of so many GPUs.")] = None,
    required_affinity: Annotated[
        str | None, typer.Option(help="With --gpus: nvlink, pcie-switch or numa-node.")
    ] = None,
    min_bandwidth: Annotated[str | None, typer.Option(help="With --gpus: GB/s.")] = None,
    gpu_model: Annotated[str | None, typer.Option(help="With --gpus: such as *a100*.")] = None,
    evict: Annotated[
        list[str] | None, typer.Option(help="As though this pod, [NAMESPACE/]NAME, were gone; may be said again.")
    ] = None,
    namespace: Namespace = None,
    output: Format = Output.TABLE,
    no_headers: Headless = False,
    config: File = None,
    context: Context = None,
    resource: Resource = keys.GPU_RESOURCE,
    extender: Url = None,
) -> None:
    """Show where a pod could go if it were created now, and why not elsewhere; nothing is written."""
    wants = {"required-affinity": required_affinity, "min-bandwidth": min_bandwidth, "gpu-model": gpu_model}
    if (file is None) == (gpus is None) or (file is not None and any(wants.values())):
        fail("say either -f FILE, or --gpus and what else they have to be")
    within = namespace or kubeconfig(config, context).namespace
    asked = pod_from(file, within) if file else pod_of(gpus or 0, wants, within, resource)
    try:
        body = msgspec.json.encode(asked)
    except TypeError as error:
        fail(f"{file}: {error}")
    pod = read(body)
    gone = {_pod_name(name, within) for name in evict or ()}

    def estimate() -> Explanation:
        told = what_if(load(kubeconfig(config, context), resource, gone), pod, _now())
        return told.model_copy(update={"estimate": True})

    # Of pods that are gone only an estimate can be had: the extender knows the cluster as it is.
    told = _answer(None if gone else extender, lambda url: asking.what_if(url, body), estimate)
    print_what_if(told, Form(output, not no_headers))
    _end(told)


@app.command("status")
def show_status(
    output: Format = Output.TABLE,
    no_headers: Headless = False,
    file: File = None,
    context: Context = None,
    resource: Resource = keys.GPU_RESOURCE,
) -> None:
    """Show the cluster as a whole, and all that needs somebody, with what to do; exit 1 where something does."""
    told = status(load(kubeconfig(file, context), resource))
    print_status(told, Form(output, not no_headers))
    if told.findings:
        raise typer.Exit(1)


@app.command("fragmentation")
def show_fragmentation(
    output: Format = Output.TABLE,
    no_headers: Headless = False,
    file: File = None,
    context: Context = None,
    resource: Resource = keys.GPU_RESOURCE,
) -> None:
    """Show how many pods of each size fit now, how many would if the cluster were empty, and who stands in the way."""
    print_fragmentation(fragmentation(load(kubeconfig(file, context), resource)), Form(output, not no_headers))


@app.command("measured")
def show_measured(
    output: Format = Output.TABLE,
    no_headers: Headless = False,
    extender: Url = None,
) -> None:
    """Show what was measured beside what is predicted, farthest off first; only a running extender knows."""
    if extender is None:
        fail("say which extender to ask, with --extender or $GPUTOPO_EXTENDER")
    try:
        told = asking.measured(extender)
    except asking.NoAnswer as error:
        fail(f"the extender at {extender} does not answer: {error}")
    print_measured(told, Form(output, not no_headers))
    if told.problem or told.refused:
        raise typer.Exit(1)


@app.command("cleanup")
def clean_up(
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without, it is only shown.")] = False,
    no_headers: Headless = False,
    file: File = None,
    context: Context = None,
) -> None:
    """Show, and with --yes remove, what gputopo has written on nodes and pods, once it is uninstalled."""
    config = kubeconfig(file, context)
    found = ask(cleanup.find(config))
    print_leftovers(found, Form(headers=not no_headers))
    if found.unread:
        fail(f"too large to be looked at: {', '.join(found.unread)}")
    if not found.leftovers:
        return
    if not yes:
        say_no("this is left of gputopo; with --yes it is removed")
    if found.running:
        say_no(f"nothing is removed while gputopo runs: {', '.join(found.running[:3])}")
    failed = ask(cleanup.remove(config, found.leftovers))
    for leftover, reason in failed.items():
        print(printable(f"{leftover.kind} {leftover.name}: {reason}"), file=sys.stderr)
    if failed:
        fail(f"{len(failed)} of {len(found.leftovers)} could not be cleaned")
    if again := ask(cleanup.find(config)).leftovers:
        say_no(f"{len(again)} have been written again: something of gputopo still runs")
    print(f"removed from {len(found.leftovers)} nodes and pods")


Node = Annotated[str, typer.Argument(help="The node's name.")]
Gpus = Annotated[list[str], typer.Argument(help="UUIDs, or indexes as nvidia-smi counts them.")]
Reason = Annotated[str, typer.Option("--why", help="What others read.")]


@app.command()
def cordon_gpu(
    node: Node,
    gpus: Gpus,
    why: Reason = "",
    hours: Annotated[float | None, typer.Option("--hours", min=0.01, help="Until it counts no more.")] = None,
    file: File = None,
    context: Context = None,
) -> None:
    """Keep new pods off some GPUs of a node; what runs on them goes on."""
    until = None if hours is None else int(time.time() + 3600 * hours)
    _say(node, gpus, Override(Word.CORDONED, why, getuser(), until), file, context)


@app.command()
def uncordon_gpu(node: Node, gpus: Gpus, file: File = None, context: Context = None) -> None:
    """Take back what was said of some GPUs of a node."""
    _say(node, gpus, None, file, context)


@app.command()
def clear_gpu(node: Node, gpus: Gpus, why: Reason = "", file: File = None, context: Context = None) -> None:
    """Say that some GPUs of a node are well: errors of before count no more, later ones do."""
    _say(node, gpus, Override(Word.HEALTHY, why, getuser(), at=int(time.time())), file, context)


def _say(node: str, gpus: list[str], override: Override | None, file: Path | None, context: str | None) -> None:
    def change(said: gpu_health.Overrides, uuid: str) -> None:
        if override:
            said[uuid] = override
        else:
            said.pop(uuid, None)

    try:
        said = ask(gpu_health.say(kubeconfig(file, context), node, gpus, change))
    except gpu_health.Refused as error:
        fail(str(error))
    for uuid, word in sorted(said.items()):
        print(printable(f"{node} {uuid}: {word}"))


def main() -> None:
    """Run the command line."""
    app(prog_name="kubectl gputopo")


def _answer(extender: str | None, ask: Callable[[str], Found], estimate: Callable[[], Found]) -> Found:
    """Ask the extender, and decide here where that cannot be."""
    if extender:
        try:
            return ask(extender)
        except asking.NoAnswer as error:
            complaint = (
                f"the extender at {extender} does not answer: {error}; this is an estimate from the annotations alone"
            )
            print(printable(complaint), file=sys.stderr)
    return estimate()


def _as_estimate(told: Told | None) -> Told | None:
    """Call what was worked out here an estimate, unless the pod is bound: then it is a fact."""
    return told and told.model_copy(update={"estimate": told.pod.node is None})


def _pod_name(text: str, namespace: str) -> tuple[str, str]:
    within, slash, name = text.rpartition("/")
    return (within, name) if slash else (namespace, name)


def _end(told: Explanation | Why) -> None:
    """End with a no where the pod waits, and no node will do."""
    if told.pod.node is None and not told.fits:
        raise typer.Exit(1)


def _now() -> Instant:
    return Instant(time.monotonic(), time.time())
