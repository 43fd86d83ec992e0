"""`latency`: what the extender costs."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.commands.answers import AnswerFormat, reply


def latency(
    nodes: Annotated[int, typer.Option("--nodes", min=1)] = 5000,
    pods: Annotated[int, typer.Option("--pods", min=1)] = 300,
    candidates: Annotated[int, typer.Option("--candidates", min=0)] = 16,
    output: Annotated[AnswerFormat, typer.Option("--output", "-o")] = AnswerFormat.JSON,
) -> None:
    """Measure the verbs over HTTP beside the floor of a handler that only echoes the names."""
    from benchmarks.latency import measure

    found = measure(nodes, pods, candidates)
    lines = [
        f"{row['server']:<20}{row['verb']:<12}p50 {row['p50_ms']:8.3f} ms   p99 {row['p99_ms']:8.3f} ms"
        for row in found["rows"]
    ]
    ratios = ", ".join(f"{verb} {ratio}" for verb, ratio in found["p99_ratio_to_floor"].items())
    reply(
        output, found, "\n".join([*lines, f"p99 over the floor's: {ratios}", f"ready after {found['ready_seconds']} s"])
    )
