"""`served`: the trace of shared GPUs through the extender itself."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.commands.answers import AnswerFormat, OutputOption, refuse, reply
from benchmarks.performance.machine import describe_machine

_FIRST_SEED = 42
MOST_NODES = 1_000


def served(
    trace: Annotated[Path, typer.Option("--trace", help="Folder with the trace, as `placement` reads it.")],
    workloads: Annotated[
        str | None, typer.Option("--workloads", help="Some of its pod lists, or LIST/gpushare60; default all.")
    ] = None,
    nodes: Annotated[
        int, typer.Option("--nodes", min=1, max=MOST_NODES, help="How many of its nodes, evenly spread.")
    ] = 24,
    seeds: Annotated[int, typer.Option("--seeds", min=1)] = 1,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Run a trace of shared GPUs through the extender. It compares the extender's own filter and bind with the simulator.

    Pods arrive until they request 130 % of all GPUs. Pods without GPUs are left out.
    """
    from benchmarks.placement.command import summary
    from benchmarks.placement.traces.files import BadTrace
    from benchmarks.placement.traces.openb import OpenbTrace
    from benchmarks.processes.process import NotReady
    from benchmarks.served.replay import POLICIES, SERVED, ExtenderRefused, course_of, rows_of, serve, simulate

    rows = []
    try:
        read = OpenbTrace(trace)
        for workload in workloads.split(",") if workloads else read.workloads:
            for seed in range(_FIRST_SEED, _FIRST_SEED + seeds):
                course = course_of(read, workload, nodes, seed)
                found = [(policy, simulate(course, policy, seed)) for policy in POLICIES]
                rows += rows_of(workload, seed, [(SERVED, serve(course)), *found])
                typer.echo(f"{workload}, seed {seed}: {len(course.arrivals)} pods", err=True)
    except (BadTrace, NotReady, ExtenderRefused) as wrong:
        refuse(str(wrong))
    document = {"rows": [asdict(row) for row in rows], "nodes": nodes, "machine": describe_machine()}
    reply(output, document, summary(rows, ["allocation_pct"]))
