"""What was measured beside what was predicted, for people and as a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.measure.run import MeasurementOutcome
from benchmarks.measure.survey import Skipped, Survey, Target
from topology.bandwidth.measured import Figure
from topology.bandwidth.predict import Bandwidth

_HEAD = f"{'machine':<18}{'node':<20}{'GPUs':<18}{'measured GB/s':>24}{'predicted GB/s':>24}{'off by':>8}  inside"


def as_rows(outcomes: Iterable[MeasurementOutcome]) -> list[dict[str, Any]]:
    """Return a row for each figure."""
    return [_row(outcome.target, figure) for outcome in outcomes for figure in outcome.figures]


def _row(target: Target, figure: Figure) -> dict[str, Any]:
    measured, predicted, conditions = figure.bandwidth, target.predicted[figure.gpus], figure.conditions
    return {
        "machine": target.kind,
        "node": target.node,
        "gpus": list(figure.gpus),
        "measured": _interval(measured),
        "predicted": _interval(predicted),
        "error_pct": round(100 * (measured.point / predicted.point - 1), 1),
        "inside": predicted.low <= measured.point <= predicted.high,
        "runs": len(figure.runs_gb_per_s),
        "message_bytes": conditions.message_bytes,
        "at": conditions.at,
        "driver": conditions.driver,
        "nccl": conditions.nccl,
    }


def _interval(rate: Bandwidth) -> dict[str, float]:
    return {"low": rate.low, "point": rate.point, "high": rate.high}


def problems(outcomes: Sequence[MeasurementOutcome], namespace: str) -> list[str]:
    """Return all that went wrong, and what is to be done about it."""
    said = []
    for outcome in outcomes:
        node = outcome.target.node
        if outcome.problem:
            said.append(f"{node}: {outcome.problem}")
        said += [f"{node}: GPUs {_places(failed.gpus)}: {failed.reason}" for failed in outcome.failed]
        if outcome.left:
            said.append(f"{node}: its Job is left: kubectl delete job -n {namespace} {outcome.left}")
    return said


def as_text(rows: Iterable[dict[str, Any]]) -> str:
    """Return the table."""
    lines = [_HEAD]
    for row in rows:
        measured, predicted = _spelled(row["measured"]), _spelled(row["predicted"])
        inside = "yes" if row["inside"] else "no"
        lines.append(
            f"{row['machine']:<18}{row['node']:<20}{_places(row['gpus']):<18}{measured:>24}{predicted:>24}"
            f"{row['error_pct']:>+7.0f}%  {inside}"
        )
    return "\n".join(lines)


def plan_as_rows(survey: Survey) -> list[dict[str, Any]]:
    """Return what would be measured."""
    return [
        {
            "machine": target.kind,
            "node": target.node,
            "gpus": list(gpus),
            "predicted": _interval(target.predicted[gpus]),
        }
        for target in survey.targets
        for gpus in target.sets
    ]


def plan_as_text(survey: Survey) -> str:
    """Return a line for each machine, and for each that is left out."""
    lines = [
        f"{target.kind}  {target.node}  {target.description}: {len(target.sets)} of {len(target.predicted)} kinds of sets"
        for target in survey.targets
    ]
    return "\n".join([*lines, *skipped_as_text(survey.skipped)]) or "no node has GPUs to measure"


def skipped(survey: Survey) -> list[dict[str, str]]:
    """Return what is left out."""
    return [{"machine": each.kind, "node": each.node, "reason": each.reason} for each in survey.skipped]


def skipped_as_text(skipped: Iterable[Skipped]) -> list[str]:
    """Return a line for each machine that is left out."""
    return [f"{each.kind}  {each.node}: left out: {each.reason}" for each in skipped]


def _places(gpus: Iterable[int]) -> str:
    return ",".join(map(str, gpus))


def _spelled(rate: dict[str, float]) -> str:
    return f"{rate['point']:.1f} ({rate['low']:.1f} to {rate['high']:.1f})"
