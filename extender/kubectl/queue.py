"""`kubectl gputopo queue`: the pods behind our scheduling gate, and how to open them where nobody plans."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from extender.features.queue import listing
from extender.features.queue.estimate import estimate
from extender.features.queue.listing import QueueReport, QueueRow
from extender.inspect.outlook import written
from extender.kubectl import cleanup, extender_client
from extender.kubectl.form import Form, say
from extender.kubectl.reading import StateSource, ask, fail, kubeconfig, say_no

Pods = Annotated[
    list[str] | None,
    typer.Argument(metavar="open POD", help="With `open`: the pods whose gate is removed. Needs no extender."),
]
All = Annotated[
    bool, typer.Option("--all", help="With `open`: all pods of the cluster, or of the namespace of -n, that wait.")
]


Within = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Pods of this namespace. `open POD` takes the context's by default."),
]


def show_queue(
    source: StateSource, form: Form, words: Pods = None, all_: All = False, namespace: Within = None
) -> None:
    """Show the queue in its order, and why pods wait. Exit 1 if the extender does not serve it, or a named pod is not in it."""
    verb, *names = words or [""]
    if verb == "open":
        _open(source, names, namespace, is_all=all_)
        return
    if verb or all_:
        fail("use `queue`, `queue open POD...` or `queue open --all`")
    report = source.answer(extender_client.queue, lambda: _estimate(source))
    rows = tuple(row for row in report.rows if namespace in (None, row.namespace))
    report = report.model_copy(update={"rows": rows})
    _print(report, form)
    if report.is_served is False and report.rows:
        raise typer.Exit(1)


def _estimate(source: StateSource) -> QueueReport:
    state, now = source.state(), source.now
    answer = estimate(state, now)
    return listing.report(state, answer.standings, now, is_served=None, reservation=answer.reservation)


def _print(report: QueueReport, form: Form) -> None:
    """Print a row for each gang or pod."""
    if form.document(report, (f"{row.kind}/{row.name}" for row in report.rows)):
        return
    if report.is_served is None:
        say("an estimate, no extender was asked: --extender also says whether the queue is served", to=sys.stderr)
    if report.is_served is False and report.rows:
        say(f"nobody plans these pods: {listing.WITHOUT_QUEUE}", to=sys.stderr)
    if report.pods_left_out:
        say(f"{report.pods_left_out} more pods of all namespaces are not listed", to=sys.stderr)
    if not report.rows:
        say("no pod waits in the queue")
        return
    heads = (
        "PLACE",
        "NAMESPACE",
        "NAME",
        "PODS",
        "GPUS",
        "PRIORITY",
        "SINCE",
        "REASON",
        "KEPT-GPUS",
        "START",
        "MESSAGE",
    )
    form.table(heads, map(_row, report.rows), 1)


def _row(row: QueueRow) -> Sequence[str]:
    counts = (str(row.pods), str(row.gpus), str(row.priority))
    kept = "yes" if row.is_reserved_for else ""
    name = f"{row.kind}/{row.name}"
    times = (written(row.since), row.reason, kept, written(row.expected_start))
    return str(row.place or ""), row.namespace, name, *counts, *times, row.message


def _open(source: StateSource, names: Sequence[str], namespace: str | None, *, is_all: bool) -> None:
    """Remove our gate, and no other, from pods that wait."""
    if bool(names) == is_all:
        fail("say which pods, or --all")
    if source.snapshot_file is not None:
        fail("a snapshot cannot be changed")
    config = kubeconfig(source.file, source.context)
    within = namespace if is_all else namespace or config.namespace
    waiting = [pod for pod in ask(cleanup.find_gated(config)) if within in (None, pod.namespace)]
    wanted = waiting if is_all else [pod for pod in waiting if pod.name in names]
    failed = ask(cleanup.remove(config, wanted))
    for pod in wanted:
        say(f"{pod.namespace}/{pod.name}: {failed.get(pod, 'opened')}", to=sys.stderr if pod in failed else None)
    if failed:
        fail(f"{len(failed)} of {len(wanted)} could not be opened")
    if absent := sorted({*names} - {pod.name for pod in wanted}):
        _no_such(within, absent)
    if not wanted:
        say("no pod waits in the queue")


def _no_such(namespace: str | None, names: Sequence[str]) -> NoReturn:
    say_no(f"not in the queue: {', '.join(f'{namespace}/{name}' for name in names)}")
