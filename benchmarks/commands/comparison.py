"""`bandwidth`, `placement`, `snapshot`, `compare` and `report`: the product beside measurements, and beside its peers."""

from __future__ import annotations

import os
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.commands.answers import OUTPUT, AnswerFormat, OutputOption, print_json, refuse, reply
from benchmarks.performance.machine import describe_machine
from benchmarks.sources import UnreadableSource
from topology.annotations import keys

NodeTypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--node-type",
        metavar="PRODUCT=NODE_TYPE",
        help="How nodes without an agent are wired: a name of `list`, or a file that `show` reads. Default: a guess.",
    ),
]


def bandwidth(
    measured: Annotated[Path | None, typer.Option("--measured", help="CSV table of published bandwidths.")] = None,
    topologies: Annotated[
        list[Path] | None, typer.Option("--topologies", help="Folder with the topologies that the table names.")
    ] = None,
    more_topologies: Annotated[list[Path] | None, typer.Argument(metavar="[DIR]...", help="Further folders.")] = None,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Compare predicted with measured bandwidth. The measurements are published ones, fitted and unseen."""
    from benchmarks.accuracy.bandwidth import as_text, compare, summarise
    from benchmarks.accuracy.measurements import UnreadableMeasurements, default_table, read_measurements

    table = measured or default_table()
    beside = (table.parent / "machines", table.parent / "topologies", table.parent.parent / "topologies")
    folders = (*(topologies or ()), *(more_topologies or ()), *beside)
    try:
        rows = compare(read_measurements(table), folders, table)
    except (UnreadableMeasurements, UnreadableSource) as unreadable:
        refuse(
            str(unreadable)
            if measured
            else f"{unreadable}; --measured takes a table of your own (docs/explanation/bandwidth.md)"
        )
    summary = summarise(rows)
    reply(output, {"rows": [row.row() for row in rows], "summary": summary}, as_text(rows, summary))


def placement(
    scenario: Annotated[
        str | None, typer.Option("--scenario", help="Which experiment; a trace's own unless named.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Folder with the trace, as docs/how-to/compare-placements.md says.")
    ] = None,
    workloads: Annotated[
        str | None, typer.Option("--workloads", help="Some of its workloads, with commas between.")
    ] = None,
    policies: Annotated[str | None, typer.Option("--policies", help="Some policies, with commas between.")] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help="Runs of each cell, with random numbers of their own; 10 unless --quick."),
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(
            "--first-seed", min=0, help="Of the first run, the next runs have the next ones; 42 unless given."
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Print how far the others are from this policy, seed by seed.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", help="Print only some metrics, with commas between.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One workload, few policies and seeds: less than a minute.")
    ] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, show_default=False, help="Processes; default one for each core.")
    ] = os.cpu_count() or 1,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Place the same jobs by gputopo and by its peers. All policies meet the same jobs."""
    from benchmarks.placement.command import COMPARED, BadExperiment, experiment_of, metrics_of, summary
    from benchmarks.placement.policies import UnknownPolicy
    from benchmarks.placement.processes import ProcessLost
    from benchmarks.placement.report.differences import differences
    from benchmarks.placement.rows import QUANTILE
    from benchmarks.placement.traces.files import BadTrace

    try:
        asked_for = scenario, trace, _words(workloads), _words(policies), seeds, against
        experiment = experiment_of(*asked_for, first_seed=first_seed, quick=quick)
        rows = experiment.run(jobs)
    except (BadExperiment, BadTrace, ProcessLost, UnknownPolicy) as wrong:
        refuse(str(wrong))
    measured, asked = metrics_of(rows), _words(metrics)
    unknown = [metric for metric in asked if metric not in measured]
    if unknown:
        asked = []  # the runs may have taken an hour: all that they measured is shown before the word is refused
    usual = [metric for metric in COMPARED if metric in measured] if against else []
    shown = asked or usual or [metric for metric in measured if not metric.endswith(QUANTILE)]
    text = differences(rows, against, shown) if against else summary(rows, shown)
    kept = [row for row in rows if not asked or row.metric in asked]
    cut = {"cut": experiment.cut} if experiment.cut else {}
    document = {"rows": [asdict(row) for row in kept], "machine": describe_machine(), **cut}
    reply(output, document, "\n".join([text, *cut.values()]))
    if unknown:
        refuse(f"no metric {unknown[0]!r} was measured; there are {', '.join(measured)}")


def snapshot(
    folder: Annotated[Path, typer.Argument(help="Where the trace goes.")],
    nodes: Annotated[Path | None, typer.Option("--nodes", help="What `kubectl get nodes -o json` printed.")] = None,
    pods: Annotated[Path | None, typer.Option("--pods", help="What `kubectl get pods -A -o json` printed.")] = None,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", help="Instead of both: what `kubectl gputopo snapshot` wrote.")
    ] = None,
    resource: Annotated[str, typer.Option("--resource", help="The resource that pods ask for.")] = keys.GPU_RESOURCE,
    node_type: NodeTypeOption = None,
) -> None:
    """Turn a cluster into a folder for `placement`. Give it as --trace."""
    from benchmarks.placement.traces.files import BadTrace
    from benchmarks.placement.traces.node_types import NodeTypes
    from benchmarks.placement.traces.snapshot import write_snapshot

    nodes, pods = (cluster, cluster) if cluster else (nodes, pods)
    if nodes is None or pods is None:
        refuse("say either --cluster, or --nodes and --pods")
    try:
        size = write_snapshot(nodes, pods, folder, resource, NodeTypes.parse(node_type or ()))
    except BadTrace as wrong:
        refuse(str(wrong))
    typer.echo(f"{size.nodes} nodes with GPUs, {size.pods} pods that ask for them: {folder}")
    for assumption in size.assumptions:
        how = "a guess; --node-type names another" if assumption.is_guess else "as given"
        typer.echo(f"{assumption.subject} count as {assumption.node_type}: {how}")


def report_placement(
    folder: Annotated[Path, typer.Option("--folder", help="Where the page goes.")] = Path("reports/placement"),
    scenarios: Annotated[str | None, typer.Option("--scenarios", help="Some of them, with commas between.")] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Instead of what each scenario needs.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Of each scenario one workload, few policies and seeds: less than a minute.")
    ] = False,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="Do not run: take the rows.json of an earlier run.")
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, show_default=False, help="Processes; default one for each core.")
    ] = os.cpu_count() or 1,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Run the placement experiments, and write a page. It has tables, figures and raw data."""
    from benchmarks.placement.processes import ProcessLost
    from benchmarks.placement.registry import SCENARIOS
    from benchmarks.placement.report.command import BadRows, measure, prepare, read_measured, write_page

    unknown = [name for name in _words(scenarios) if name not in SCENARIOS]
    if unknown:
        refuse(f"no scenario is called {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    try:
        prepare(folder)
    except OSError as failed:
        refuse(f"{folder}: {failed.strerror}")
    try:
        document = (
            read_measured(rows) if rows else measure(_words(scenarios), seeds, jobs, describe_machine(), quick=quick)
        )
    except (BadRows, ProcessLost) as wrong:
        refuse(str(wrong))
    write_page(folder, document)
    reply(output, document, f"{folder / 'report.html'}")


class GainFormat(StrEnum):
    """What `compare` prints."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"
    """A page with pictures that needs no network."""


def compare(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE_OR_FOLDER",
            help="What `kubectl gputopo snapshot` or `kubectl get nodes,pods -A -o json` wrote, or a folder made of it.",
        ),
    ],
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Orders of arrival; 10, or 3 with --quick.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer orders and peers.")] = False,
    node_type: NodeTypeOption = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, show_default=False, help="Processes; default one for each core.")
    ] = os.cpu_count() or 1,
    output: Annotated[GainFormat, OUTPUT] = GainFormat.TEXT,
) -> None:
    """Say what gputopo would change on your cluster. Nothing has to be installed there."""
    from benchmarks.placement.gain.command import QUICK_SEEDS, SEEDS, ask, document_of, parts_of, what_was_cut
    from benchmarks.placement.gain.words import TITLE
    from benchmarks.placement.processes import ProcessLost
    from benchmarks.placement.report.page import to_html, to_text
    from benchmarks.placement.traces.files import BadTrace
    from benchmarks.placement.traces.node_types import NodeTypes

    runs = seeds or (QUICK_SEEDS if quick else SEEDS)
    try:
        answer = ask(source, runs, jobs, quick=quick, node_types=NodeTypes.parse(node_type or ()))
    except (BadTrace, ProcessLost) as wrong:
        refuse(str(wrong))
    parts = parts_of(answer, what_was_cut(runs) if quick else "")
    match output:
        case GainFormat.JSON:
            print_json(document_of(answer))
        case GainFormat.HTML:
            print(to_html(TITLE, parts))
        case GainFormat.TEXT:
            print(to_text(parts), end="")


def _words(listed: str | None) -> list[str]:
    return [word.strip() for word in (listed or "").split(",") if word.strip()]
