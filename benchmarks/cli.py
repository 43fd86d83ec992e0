"""`gputopo-bench`: look at a topology, plan on it, and measure.

Exit codes: 0 yes, 1 a clear no, 2 bad usage or input.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from benchmarks.commands import comparison, drift, health, measure, optimum, performance, served, topology

app = typer.Typer(add_completion=True, no_args_is_help=True, help=__doc__, rich_markup_mode=None)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version("gputopo"))
        raise typer.Exit


@app.callback(help=__doc__)
def bench(
    print_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit."),
    ] = False,
) -> None:
    """Take what stands before the command."""


app.command(name="show")(topology.show)
app.command(name="plan")(topology.plan_gpus)
app.command(name="value")(topology.value)
app.command(name="list")(topology.list_machines)
app.command(name="health")(health.health)
app.command(name="health-year")(health.health_year)


@app.command()
def demo(
    serve: Annotated[bool, typer.Option("--serve", help="Stay, and leave the inspect page open.")] = False,
) -> None:
    """Place pods on a simulated fleet through the real extender, next to what stock scheduling does."""
    from benchmarks.demo import run

    run(serve=serve)


app.command(name="measure")(measure.measure)
app.command(name="drift")(drift.drift)
app.command(name="optimum")(optimum.optimum)
app.command(name="latency")(performance.latency)
app.command(name="scheduler")(performance.scheduler)
app.command(name="state")(performance.state)
app.command(name="curves")(performance.curves)
app.command(name="monitoring")(performance.monitoring)
app.command(name="bandwidth")(comparison.bandwidth)
app.command(name="placement")(comparison.placement)
app.command(name="served")(served.served)
app.command(name="snapshot")(comparison.snapshot)
app.command(name="compare")(comparison.compare)
app.command(name="report")(comparison.report_placement)


def main() -> None:
    """Run the command line; output that cannot be written is no answer, and so no exit code 1."""
    try:
        app()
        sys.stdout.flush()
    except (OSError, UnicodeEncodeError) as failed:
        sys.stderr.write(f"cannot write the output: {failed}\n")
        os._exit(2)  # a further attempt to flush would fail again
