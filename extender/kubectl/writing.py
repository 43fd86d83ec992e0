"""The verbs that write: what people say of GPUs, and what is removed once gputopo is uninstalled."""

from __future__ import annotations

import sys
import time
from getpass import getuser
from math import isnan
from pathlib import Path
from typing import Annotated

import typer

from extender.inspect.inspection import Answer
from extender.kubectl import cleanup, gpu_health
from extender.kubectl.form import Form, Output, say
from extender.kubectl.options import Context, File, Format, Headless
from extender.kubectl.reading import ask, fail, kubeconfig, say_no
from topology.annotations.overrides import Override, Word

Node = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")]
Gpus = Annotated[list[str], typer.Argument(metavar="GPU", help="UUIDs, or indexes as in nvidia-smi.")]
MAX_HOURS = 100 * 366 * 24.0
Reason = Annotated[str, typer.Option("--why", help="Reason that others see.")]


class LeftoverInfo(Answer):
    """A node or pod, and what gputopo left there; or a pod that it created."""

    kind: str
    namespace: str
    name: str
    annotations: tuple[str, ...]
    conditions: tuple[str, ...]
    gates: tuple[str, ...]


class LeftoverList(Answer):
    """All that is left."""

    leftovers: tuple[LeftoverInfo, ...]


def clean_up(
    yes: Annotated[bool, typer.Option("--yes", help="Remove it. Without this option it is only shown.")] = False,
    namespace: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namespace",
            help="Namespace where gputopo was installed. Pods with its labels elsewhere do not count.",
        ),
    ] = None,
    output: Format = Output.TABLE,
    no_headers: Headless = False,
    file: File = None,
    context: Context = None,
) -> None:
    """Show, and with --yes remove, what gputopo wrote. It looks at nodes and pods, once gputopo is uninstalled."""
    config = kubeconfig(file, context)
    remains = ask(cleanup.find(config))
    form = Form(output, not no_headers)
    _print_leftovers(remains, form)
    if remains.unread:
        fail(f"too large to be looked at: {', '.join(remains.unread)}")
    if not remains.leftovers:
        return
    if not yes:
        say_no("this is left of gputopo; with --yes it is removed")
    if running := [pod for pod in remains.running if namespace is None or pod.partition("/")[0] == namespace]:
        hint = "" if namespace else "; if these are not gputopo's, say with -n in which namespace it was"
        say_no(f"nothing is removed while gputopo runs: {', '.join(running[:3])}{hint}")
    failed = ask(cleanup.remove(config, remains.leftovers))
    for leftover, reason in failed.items():
        say(f"{leftover.kind} {leftover.name}: {reason}", to=sys.stderr)
    if failed:
        fail(f"{len(failed)} of {len(remains.leftovers)} could not be cleaned")
    # A pod that is being deleted may be seen a moment longer.
    if again := [leftover for leftover in ask(cleanup.find(config)).leftovers if leftover.whole is None]:
        say_no(f"{len(again)} have been written again: something of gputopo still runs")
    say(f"removed from {len(remains.leftovers)} nodes and pods", to=sys.stderr if form.is_document else None)


def _print_leftovers(remains: cleanup.ClusterLeftovers, form: Form) -> None:
    """Print which objects carry annotations, conditions or gates of ours."""
    shown = tuple(
        LeftoverInfo(
            kind=leftover.kind,
            namespace=leftover.namespace,
            name=leftover.name,
            annotations=leftover.keys,
            conditions=leftover.conditions,
            gates=leftover.gates,
        )
        for leftover in remains.leftovers
    )
    if form.document(LeftoverList(leftovers=shown), (f"{info.kind}/{info.name}" for info in shown)):
        return
    rows = (
        (info.kind, info.namespace, info.name, *map(",".join, (info.annotations, info.conditions, info.gates)))
        for info in shown
    )
    heads = ("KIND", "NAMESPACE", "NAME", "ANNOTATIONS", "CONDITIONS", "GATES")
    form.table(heads, rows, empty="nothing of gputopo is left on nodes and pods")


def cordon_gpu(
    node: Node,
    gpus: Gpus,
    why: Reason = "",
    hours: Annotated[
        float | None, typer.Option("--hours", min=0.01, max=MAX_HOURS, help="Remove the cordon after this time.")
    ] = None,
    file: File = None,
    context: Context = None,
) -> None:
    """Keep new pods off GPUs of a node. Running pods continue."""
    if hours is not None and isnan(hours):
        fail("--hours takes a number")
    until = None if hours is None else int(time.time() + 3600 * hours)
    _say(node, gpus, Override(Word.CORDONED, why, getuser(), until), file, context)


def uncordon_gpu(node: Node, gpus: Gpus, file: File = None, context: Context = None) -> None:
    """Remove the cordon from GPUs of a node. It also takes back `clear-gpu`. Name a replaced GPU by its UUID."""
    _say(node, gpus, None, file, context)


def clear_gpu(node: Node, gpus: Gpus, why: Reason = "", file: File = None, context: Context = None) -> None:
    """Declare GPUs of a node healthy. Earlier errors no longer count, later ones do."""
    _say(node, gpus, Override(Word.HEALTHY, why, getuser(), at=int(time.time())), file, context)


def _say(node: str, gpus: list[str], override: Override | None, file: Path | None, context: str | None) -> None:
    try:
        said = ask(gpu_health.say(kubeconfig(file, context), node, gpus, override))
    except gpu_health.NoSuchNode as error:
        say_no(str(error))
    except gpu_health.OverrideRefused as error:
        fail(str(error))
    for uuid, word in sorted(said.items()):
        say(f"{node} {uuid}: {word}")
