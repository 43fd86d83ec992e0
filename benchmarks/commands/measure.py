"""`measure`: what the sets of GPUs of a cluster's machines really reach, beside what is predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.commands.answers import AnswerFormat, OutputOption, refuse, reply


def measure(
    image: Annotated[str, typer.Option("--image", help="With a shell and nccl-tests in it.")] = "",
    nodes: Annotated[str, typer.Option("--nodes", help="Only nodes with these labels, LABEL or LABEL=VALUE,….")] = "",
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Of the Jobs; default the context's.")
    ] = None,
    max_jobs: Annotated[int, typer.Option("--max-jobs", min=1, help="Node types in one run.")] = 4,
    max_sets: Annotated[
        int, typer.Option("--max-sets", min=1, max=256, help="Kinds of GPU sets of each node type.")
    ] = 32,
    runs: Annotated[int, typer.Option("--runs", min=1, max=20, help="Of each set.")] = 3,
    timeout: Annotated[int, typer.Option("--timeout", min=60, help="Of each Job, in seconds.")] = 1800,
    again: Annotated[bool, typer.Option("--again", help="Measure again what is measured already.")] = False,
    file: Annotated[Path | None, typer.Option("--file", help="Add the figures to this file.")] = None,
    configmap: Annotated[
        str | None, typer.Option("--configmap", help="Add them to this ConfigMap, [NAMESPACE/]NAME.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be measured.")] = False,
    command: Annotated[str, typer.Option("--command", help="The program in the image.")] = "all_reduce_perf",
    scheduler: Annotated[str, typer.Option("--scheduler", help="Scheduler of the Jobs' pods.")] = "gputopo",
    resource: Annotated[str, typer.Option("--resource", help="The resource that counts GPUs.")] = "nvidia.com/gpu",
    priority_class: Annotated[
        str | None, typer.Option("--priority-class", help="Of the Jobs' pods; a low one makes room for others.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Instead of $KUBECONFIG or ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option("--context", help="Instead of the current context.")] = None,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Run nccl-tests on an idle node of each type. One kind of GPU set comes after the other. Exit 1 if some failed.

    Each Job takes its whole node. All Jobs are removed at the end.
    """
    from benchmarks.measure.command import MeasurementLimits, StoreLocation, measure_cluster
    from benchmarks.measure.job import JobOptions
    from benchmarks.measure.store import Unusable
    from benchmarks.measure.survey import read_selector
    from extender.kubectl.reading import ask
    from extender.kubectl.reading import kubeconfig as find_kubeconfig

    if not image and not dry_run:
        refuse("--image is needed: an image with a shell and nccl-tests in it")
    if file and configmap:
        refuse("--file and --configmap: say one of them")
    try:
        labels = read_selector(nodes)
    except ValueError as error:
        refuse(f"--nodes: {error}")
    config = find_kubeconfig(kubeconfig, context)
    wanted = JobOptions(image, command, runs, timeout, scheduler, resource, priority_class)
    limits = MeasurementLimits(labels=labels, max_jobs=max_jobs, max_sets=max_sets, again=again, dry_run=dry_run)
    place = StoreLocation(file=file, config_map=configmap)
    try:
        report = ask(measure_cluster(config, namespace or config.namespace, wanted, limits, place, _say))
    except Unusable as error:
        refuse(str(error))
    reply(output, report.document, report.text)
    for note in report.notes:
        _say(note)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _say(line: str) -> None:
    typer.echo(line if line.isprintable() else ascii(line), err=True)
