"""`drift`: what pods' links were seen to carry, beside what was predicted for their GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.commands.answers import AnswerFormat, OutputOption, refuse, reply

if TYPE_CHECKING:
    from benchmarks.measure.drift import Seen


def drift(
    file: Annotated[Path, typer.Argument(help="Prometheus' answer: bytes a second sent over NVLink, by UUID.")],
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Instead of $KUBECONFIG or ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option("--context", help="Instead of the current context.")] = None,
    resource: Annotated[str, typer.Option("--resource", help="The resource that counts GPUs.")] = "nvidia.com/gpu",
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Compare NVLink traffic with the prediction. It asks the agents. Exit 1 where it was higher."""
    from benchmarks.measure.drift import DriftVerdict, UnreadableRates, compare, read_rates
    from extender.cluster.state import ClusterState
    from extender.kubectl.reading import ask, read_state
    from extender.kubectl.reading import kubeconfig as find_kubeconfig

    try:
        rates = read_rates(file.read_bytes())
    except (OSError, UnreadableRates) as error:
        refuse(f"{file}: {error.strerror if isinstance(error, OSError) else error}")
    state = ask(read_state(find_kubeconfig(kubeconfig, context), ClusterState(resource=resource)))
    found = compare(state.views.values(), rates)
    reply(output, {"rows": [_row(seen) for seen in found]}, _as_text(found))
    if any(seen.finding is DriftVerdict.MORE for seen in found):
        raise typer.Exit(1)


def _row(seen: Seen) -> dict[str, Any]:
    predicted = seen.predicted
    return {
        "pod": seen.pod,
        "node": seen.node,
        "gpus": list(seen.gpus),
        "seen_gb_per_s": seen.seen_gb_per_s,
        "predicted": {"low": predicted.low, "point": predicted.point, "high": predicted.high},
        "measured": predicted.measured,
        "finding": seen.finding,
    }


def _as_text(found: tuple[Seen, ...]) -> str:
    lines = [f"{'pod':<40}{'node':<20}{'GPUs':>5}{'seen GB/s':>11}{'predicted GB/s':>24}  finding"]
    for seen in found:
        predicted = seen.predicted
        interval = f"{predicted.point:.0f} ({predicted.low:.0f} to {predicted.high:.0f})"
        lines.append(
            f"{seen.pod:<40}{seen.node:<20}{len(seen.gpus):>5}{seen.seen_gb_per_s:>11.1f}{interval:>24}  {seen.finding}"
        )
    return "\n".join(lines)
