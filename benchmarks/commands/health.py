"""`health`: what the agent makes of GPUs that fall sick, from a file of facts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agent.health.policy import Policy
from benchmarks.commands.answers import AnswerFormat, refuse, reply
from benchmarks.health.course import Course, follow
from benchmarks.health.facts import UnreadableFact, read_facts


def health(
    file: Annotated[Path, typer.Argument(help="Facts, one JSON object a line: t, gpu, and what was told.")],
    until: Annotated[
        float | None, typer.Option("--until", help="How long time goes on, in seconds; default until nothing changes.")
    ] = None,
    output: Annotated[AnswerFormat, typer.Option("--output", "-o")] = AnswerFormat.TEXT,
) -> None:
    """Show each change of state that a sequence of facts brings to the GPUs of a node, and to their links."""
    try:
        facts = read_facts(file)
    except (OSError, UnreadableFact) as error:
        refuse(str(error))
    course = follow(facts, Policy(), until)
    reply(output, asdict(course), _in_words(course))


def _in_words(course: Course) -> str:
    lines = [
        f"{change.t:>10g} s  {name:<12} {change.state:<12} {change.reason}".rstrip()
        for name, changes in (*course.gpus.items(), *course.links.items())
        for change in changes
    ]
    return "\n".join(lines) or "every GPU stays healthy"
