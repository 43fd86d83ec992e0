"""`latency` and `state`: what the extender costs."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.commands.answers import AnswerFormat, refuse, reply


def latency(
    nodes: Annotated[int, typer.Option("--nodes", min=1)] = 5000,
    pods: Annotated[int, typer.Option("--pods", min=1)] = 2000,
    candidates: Annotated[int, typer.Option("--candidates", min=0)] = 16,
    output: Annotated[AnswerFormat, typer.Option("--output", "-o")] = AnswerFormat.JSON,
) -> None:
    """Measure the verbs over HTTP beside the floor of a handler that only echoes the names."""
    from benchmarks.fleet import TooFewGpus
    from benchmarks.latency import as_text, measure
    from benchmarks.process import NotReady

    try:
        found = measure(nodes, pods, candidates)
    except (NotReady, TooFewGpus) as wrong:
        refuse(str(wrong))
    reply(output, found, as_text(found))


def state(
    nodes: Annotated[int, typer.Option("--nodes", min=1)] = 5000,
    pods: Annotated[int, typer.Option("--pods", min=0, help="running already, on all nodes together")] = 50_000,
    output: Annotated[AnswerFormat, typer.Option("--output", "-o")] = AnswerFormat.JSON,
) -> None:
    """Measure how long the extender takes to know a whole cluster after its start, and how much memory that takes."""
    from benchmarks.process import NotReady
    from benchmarks.state import as_text, measure

    try:
        found = measure(nodes, pods)
    except NotReady as wrong:
        refuse(str(wrong))
    reply(output, found, as_text(found))
