"""`gputopo-bench`: look at a topology, plan on it, and measure.

Exit codes: 0 yes, 1 a clear no, 2 bad usage or input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Annotated, Final

import typer

from benchmarks.commands import comparison, drift, health, measure, optimum, performance, served, topology
from extender.kubectl.help_groups import GroupedCommands

TRY: Final = "Try"
COMPARE: Final = "Compare placements"
MEASURE: Final = "Measure hardware"
COST: Final = "Measure gputopo"
HEALTH: Final = "Simulate health"
"""Headings of the help."""

app = typer.Typer(add_completion=True, no_args_is_help=True, help=__doc__, rich_markup_mode=None, cls=GroupedCommands)


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


@app.command(rich_help_panel=TRY)
def demo(
    serve: Annotated[bool, typer.Option("--serve", help="Stay, and leave the inspect page open.")] = False,
) -> None:
    """Place pods on a simulated fleet. The real extender decides, next to stock scheduling."""
    from benchmarks.demo import run

    run(serve=serve)


_COMMANDS: Final[Mapping[str, Mapping[str, Callable[..., None]]]] = {
    TRY: {
        "show": topology.show,
        "plan": topology.plan_gpus,
        "value": topology.value,
        "list": topology.list_machines,
    },
    COMPARE: {
        "compare": comparison.compare,
        "snapshot": comparison.snapshot,
        "placement": comparison.placement,
        "report": comparison.report_placement,
        "optimum": optimum.optimum,
        "served": served.served,
    },
    MEASURE: {
        "measure": measure.measure,
        "drift": drift.drift,
        "bandwidth": comparison.bandwidth,
        "monitoring": performance.monitoring,
    },
    COST: {
        "latency": performance.latency,
        "scheduler": performance.scheduler,
        "state": performance.state,
        "curves": performance.curves,
    },
    HEALTH: {"health": health.health, "health-year": health.health_year},
}
for _heading, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(name=_name, rich_help_panel=_heading)(_command)


def main() -> None:
    """Run the command line; output that cannot be written is no answer, and so no exit code 1."""
    try:
        app()
        sys.stdout.flush()
    except (OSError, UnicodeEncodeError) as failed:
        sys.stderr.write(f"cannot write the output: {failed}\n")
        os._exit(2)  # a further attempt to flush would fail again
