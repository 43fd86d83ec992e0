"""`health` and `health-year`: what the agent makes of GPUs that fall sick, from a file of facts or over a year."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agent.health.policy import HealthPolicy
from benchmarks.commands.answers import AnswerFormat, OutputOption, refuse, reply
from benchmarks.health.course import HealthTimeline, follow
from benchmarks.health.facts import UnreadableFact, read_facts


def health(
    file: Annotated[Path, typer.Argument(help="Events, one JSON object a line.")],
    until: Annotated[
        float | None,
        typer.Option("--until", help="End of the time, in seconds; default when nothing changes any more."),
    ] = None,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Show how events change GPUs and their links."""
    try:
        facts = read_facts(file)
    except OSError as error:
        refuse(f"{file}: {error.strerror}")
    except UnreadableFact as error:
        refuse(str(error))
    course = follow(facts, HealthPolicy(), until)
    reply(output, asdict(course), _in_words(course))


def health_year(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Simulated nodes, of eight GPUs each.")] = 1_000,
    days: Annotated[float, typer.Option("--days", min=1, help="How long.")] = 365.0,
    seed: Annotated[int, typer.Option("--seed", help="The first of the seeds.")] = 1,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Years, each with random numbers of its own.")] = 5,
    repair_hours: Annotated[
        float, typer.Option("--repair-hours", min=0, help="From an error to the reset, or reboot, that it needs.")
    ] = 4.0,
    round_days: Annotated[
        float, typer.Option("--round-days", min=0.01, help="How often people test the unusable GPUs.")
    ] = 7.0,
    published_only: Annotated[
        bool, typer.Option("--published-only", help="Leave out the kinds of incidents whose rate is assumed.")
    ] = False,
    by_kind: Annotated[
        bool, typer.Option("--by-kind", help="Print also which incidents the figures come from.")
    ] = False,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Compare health policies over a simulated year. GPUs become sick at published rates."""
    from benchmarks.health.year.incidents import DAY, HOUR, FleetYear
    from benchmarks.health.year.kinds import KINDS
    from benchmarks.health.year.operators import Operator
    from benchmarks.health.year.table import as_document, as_kinds, as_table, compare

    fleet = FleetYear(nodes=nodes, days=days)
    kinds = [kind for kind in KINDS if not (published_only and kind.is_assumed)]
    operator = Operator(reboot=repair_hours * HOUR, round=round_days * DAY)
    rows = compare(fleet, kinds, operator, range(seed, seed + seeds))
    text = as_table(fleet, rows)
    reply(output, as_document(fleet, kinds, operator, rows), f"{text}\n\n{as_kinds(kinds, rows)}" if by_kind else text)


def _in_words(course: HealthTimeline) -> str:
    lines = [
        f"{change.t:>10g} s  {name:<12} {change.state:<12} {change.reason}".rstrip()
        for name, changes in (*course.gpus.items(), *course.links.items())
        for change in changes
    ]
    return "\n".join(lines) or "every GPU stays healthy"
