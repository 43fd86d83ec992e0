"""`optimum`: how good any rule could be on a machine, beside how good the product and its peers are."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.commands.answers import AnswerFormat, OutputOption, print_json, refuse
from benchmarks.commands.sharing import shares_of
from benchmarks.performance.machine import describe_machine
from benchmarks.sources import UnreadableSource, load_topology
from topology.node.model import NodeTopology
from topology.value.fragmentation import WHOLE_GPU_MILLI

if TYPE_CHECKING:
    from benchmarks.optimum.comparison import Question, RuleOutcome

_SHARE = re.compile(r"([1-9]\d{0,2})=(\d{1,6}(?:\.\d{1,6})?)")


MOST_LOAD = 10.0
"""Beyond it nearly all pods are refused, whatever the rule."""
MOST_RESTART_MINUTES = 9_999


def optimum(
    source: Annotated[str, typer.Argument(help="A catalogue name, or another source that `show` reads.")],
    load: Annotated[float, typer.Option("--load", help="Requested GPUs on average, divided by existing GPUs.")],
    machines: Annotated[int, typer.Option("--machines", min=1, max=2, help="Nodes of this type.")] = 1,
    mix: Annotated[str, typer.Option("--mix", help="Pods by requested GPUs: size=share.")] = "1=40,2=35,4=25",
    shares: Annotated[str | None, typer.Option("--shares", help="Further pods that share a GPU: GiB=share.")] = None,
    policies: Annotated[
        str | None, typer.Option("--policies", help="Policies to compare, with commas between.")
    ] = None,
    restart_cost: Annotated[
        int | None,
        typer.Option(
            "--restart-cost",
            min=0,
            max=MOST_RESTART_MINUTES,
            help="Let pods move, at so many minutes of work; a mean pod runs for an hour. Two nodes only.",
        ),
    ] = None,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Compute the optimum, and the distance from it. The best rule never refuses what fits.

    Pods arrive at random and run for a random time. What counts is the value of the running pods, as gputopo measures it.
    """
    from benchmarks.optimum.comparison import POLICIES, POLICIES_WITH_SHARES, compare
    from benchmarks.optimum.most_pods import MOST_PODS
    from benchmarks.optimum.moving_comparison import TooManyMoves, compare_moves
    from benchmarks.optimum.whole_gpus import TooManyStates
    from benchmarks.placement.policies import UnknownPolicy, check_policy

    if not (math.isfinite(load) and 0 < load <= MOST_LOAD):
        refuse(f"--load {load}: no number above 0 and up to {MOST_LOAD}")
    if restart_cost is not None and (machines == 1 or shares or policies):
        refuse("--restart-cost goes with --machines 2, and without --shares and --policies")
    chosen = policies.split(",") if policies else POLICIES_WITH_SHARES if shares else POLICIES
    try:
        node = load_topology(source, None, lambda what: typer.echo(f"warning: {what}", err=True))
        for policy in {*chosen} - {MOST_PODS}:
            check_policy(policy)
        question = _question(node, machines, load, mix, shares)
        if restart_cost is None:
            outcomes = [*compare(question, chosen, _progress)]
        else:
            outcomes = [*compare_moves(question, restart_cost, _progress)]
    except (UnreadableSource, UnknownPolicy) as wrong:
        refuse(str(wrong))
    except (TooManyMoves, TooManyStates) as many:
        refuse(f"{source}: {many}")
    if output is AnswerFormat.JSON:
        print_json({"rows": [_row(each) for each in outcomes], "machine": describe_machine()})
    else:
        print(_table(outcomes))


def _progress(text: str) -> None:
    typer.echo(text, err=True)


def _question(node: NodeTopology, machines: int, load: float, mix: str, shares: str | None) -> Question:
    """Return what is asked, the shares of all kinds of pods adding up to 1."""
    from benchmarks.optimum.comparison import Question

    whole, parts, share_gib = _pairs("--mix", mix), {}, 1
    if max(whole) > len(node):
        refuse(f"--mix {mix!r}: the machine has {len(node)} GPUs")
    if shares is not None:
        parts, share_gib = _pairs("--shares", shares), _share_gib(node)
        for gib in parts:
            if gib >= share_gib or gib * WHOLE_GPU_MILLI % share_gib:
                refuse(f"--shares {shares!r}: {gib} GiB of {share_gib} are all, or no whole number of thousandths")
    total = sum(whole.values()) + sum(parts.values())
    return Question(
        node,
        machines,
        load,
        {size: share / total for size, share in whole.items()},
        {gib: share / total for gib, share in parts.items()},
        share_gib,
    )


def _share_gib(node: NodeTopology) -> int:
    """Return what pods can share of each GPU, all of its memory; GPUs that differ are bad input."""
    each = set(shares_of(node, 0, {}, 0).share_gib)
    if len(each) != 1:
        refuse("--shares: the machine's GPUs differ in memory")
    return each.pop()


def _pairs(option: str, text: str) -> dict[int, float]:
    """Read `1=40,2=35`, in order."""
    pairs = [_SHARE.fullmatch(part.strip()) for part in text.split(",")]
    shares = {int(pair[1]): float(pair[2]) for pair in pairs if pair is not None}
    if None in pairs or len(shares) < len(pairs) or not all(shares.values()):
        refuse(f"{option} {text!r}: no list of {_LISTED[option]}")
    return dict(sorted(shares.items()))


_LISTED = {"--mix": "size=share such as 1=40,2=35,4=25", "--shares": "GiB=share such as 6=35,12=25"}


def _row(outcome: RuleOutcome) -> dict[str, object]:
    below = outcome.below_optimum
    row: dict[str, object] = {
        "rule": outcome.rule,
        "worth": outcome.worth,
        "below_optimum_pct": None if below is None else 100 * below,
        "lost_pct": {str(size): 100 * lost for size, lost in outcome.lost.items()},
        "clique_ratio": {str(size): ratio for size, ratio in outcome.cliques.items()},
    }
    if outcome.shares_lost:
        row["share_lost_pct"] = {str(gib): 100 * lost for gib, lost in outcome.shares_lost.items()}
    return row


def _table(outcomes: Sequence[RuleOutcome]) -> str:
    sizes, shares = [*outcomes[0].lost], [*outcomes[0].shares_lost]
    asked = [*map(str, sizes), *(f"{gib}G" for gib in shares)]
    head = f"{'rule':<22}{'below optimum':>14}" + "".join(f"{f'lost {each}':>9}" for each in asked)
    lines = [head + "".join(f"{f'cliques {size}':>11}" for size in sizes if size > 1)]
    for each in outcomes:
        below = "-" if each.below_optimum is None else f"{100 * each.below_optimum:.2f} %"
        losses = *each.lost.values(), *each.shares_lost.values()
        line = f"{each.rule:<22}{below:>14}" + "".join(f"{100 * lost:>7.1f} %" for lost in losses)
        ratios = (each.cliques.get(size) for size in sizes if size > 1)
        lines.append(line + "".join(f"{'-' if ratio is None else f'{ratio:.3f}':>11}" for ratio in ratios))
    return "\n".join(lines)
