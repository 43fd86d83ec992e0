"""`optimum`: how good any rule could be on a machine, beside how good the product and its peers are."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.commands.answers import print_json, refuse
from benchmarks.performance.machine import describe_machine
from benchmarks.sources import UnreadableSource, load_topology

if TYPE_CHECKING:
    from benchmarks.optimum.comparison import Outcome

_SHARE = re.compile(r"([1-9]\d?)=(\d{1,6}(?:\.\d{1,6})?)")


class OptimumFormat(StrEnum):
    """What `optimum` prints."""

    JSON = "json"
    TABLE = "table"


def optimum(
    source: Annotated[str, typer.Argument(help="A catalogue name, or whatever else `show` reads.")],
    load: Annotated[float, typer.Option("--load", help="GPUs asked for on average, over those there are.")],
    machines: Annotated[int, typer.Option("--machines", min=1, max=2, help="Of this kind.")] = 1,
    mix: Annotated[str, typer.Option("--mix", help="Pods by GPUs asked for: size=share.")] = "1=40,2=35,4=25",
    policies: Annotated[str | None, typer.Option("--policies", help="To compare, with commas between.")] = None,
    output: Annotated[OptimumFormat, typer.Option("--output", "-o")] = OptimumFormat.TABLE,
) -> None:
    """Find the best rule that never refuses what fits, exactly, and say how far below it the product and its peers stay.

    Pods come at random and run for a random time. What counts is the worth of the pods that run, in the product's own measure.
    """
    from benchmarks.optimum.comparison import POLICIES, Question, compare
    from benchmarks.optimum.whole_gpus import TooManyStates
    from benchmarks.placement.policies import UnknownPolicy, check_policy

    if not (math.isfinite(load) and 0 < load <= MOST_LOAD):
        refuse(f"--load {load}: no number above 0 and up to {MOST_LOAD}")
    chosen = policies.split(",") if policies else POLICIES
    try:
        node = load_topology(source, None)
        for policy in chosen:
            check_policy(policy)
        question = Question(node, machines, load, _mix(mix, len(node)))
        outcomes = [*compare(question, chosen, lambda text: typer.echo(text, err=True))]
    except (UnreadableSource, UnknownPolicy) as wrong:
        refuse(str(wrong))
    except TooManyStates as many:
        refuse(f"{source}: {many}")
    if output is OptimumFormat.JSON:
        print_json({"rows": [_row(each) for each in outcomes], "machine": describe_machine()})
    else:
        print(_table(outcomes))


MOST_LOAD = 10.0
"""Beyond it nearly all pods are refused, whatever the rule."""


def _mix(text: str, gpus: int) -> dict[int, float]:
    """Read `1=40,2=35`; sizes that no such machine can hold are bad input."""
    pairs = [_SHARE.fullmatch(part.strip()) for part in text.split(",")]
    shares = {int(pair[1]): float(pair[2]) for pair in pairs if pair is not None}
    if None in pairs or len(shares) < len(pairs) or not all(shares.values()):
        refuse(f"--mix {text!r}: no list of size=share such as 1=40,2=35,4=25")
    if max(shares) > gpus:
        refuse(f"--mix {text!r}: the machine has {gpus} GPUs")
    return {size: share / sum(shares.values()) for size, share in sorted(shares.items())}


def _row(outcome: Outcome) -> dict[str, object]:
    below = outcome.below_optimum
    return {
        "rule": outcome.rule,
        "worth": outcome.worth,
        "below_optimum_pct": None if below is None else 100 * below,
        "lost_pct": {str(size): 100 * lost for size, lost in outcome.lost.items()},
        "clique_ratio": {str(size): ratio for size, ratio in outcome.cliques.items()},
    }


def _table(outcomes: Sequence[Outcome]) -> str:
    sizes = [*outcomes[0].lost]
    head = f"{'rule':<22}{'below optimum':>14}" + "".join(f"{f'lost {size}':>9}" for size in sizes)
    lines = [head + "".join(f"{f'cliques {size}':>11}" for size in sizes if size > 1)]
    for each in outcomes:
        below = "-" if each.below_optimum is None else f"{100 * each.below_optimum:.2f} %"
        line = f"{each.rule:<22}{below:>14}" + "".join(f"{100 * lost:>7.1f} %" for lost in each.lost.values())
        ratios = (each.cliques.get(size) for size in sizes if size > 1)
        lines.append(line + "".join(f"{'-' if ratio is None else f'{ratio:.3f}':>11}" for ratio in ratios))
    return "\n".join(lines)
