"""Runs every policy over the same years, and sets what came of it side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any, Final

from benchmarks.health.year.incidents import FleetYear, draw_incidents
from benchmarks.health.year.kinds import IncidentKind
from benchmarks.health.year.operators import Operator
from benchmarks.health.year.policies import POLICIES
from benchmarks.health.year.reckoning import GpuHourTotals
from benchmarks.health.year.replay import replay

COLUMNS: Final[Mapping[str, str]] = {
    "well_out": "healthy GPU-hours lost",
    "sick_in": "sick GPU-hours offered",
    "jobs_on_sick": "jobs put on a sick GPU",
    "jobs_ended": "of them ended by it",
    "taken_out": "times taken out",
}
"""The figures of an account that are compared, and how they are called."""


@dataclass(frozen=True, slots=True)
class YearRow:
    """What one policy made of one year."""

    policy: str
    seed: int
    incidents: int
    account: GpuHourTotals


def compare(fleet: FleetYear, kinds: Sequence[IncidentKind], operator: Operator, seeds: Iterable[int]) -> list[YearRow]:
    """Return a row for each seed and policy; progress goes to stderr."""
    rows: list[YearRow] = []
    for seed in seeds:
        incidents = draw_incidents(fleet, kinds, operator, seed)
        number = sum(map(len, incidents.values()))
        sys.stderr.write(f"seed {seed}: {number} incidents on {len(incidents)} nodes\n")
        for name, policy in POLICIES.items():
            rows.append(YearRow(name, seed, number, replay(fleet, incidents, policy, operator, seed)))
    return rows


def as_document(
    fleet: FleetYear, kinds: Sequence[IncidentKind], operator: Operator, rows: Sequence[YearRow]
) -> dict[str, Any]:
    """Return everything, the rates with their sources included."""
    return {
        "fleet": asdict(fleet),
        "operator_seconds": asdict(operator),
        "kinds": [
            {
                "name": kind.name,
                "per_gpu_hour": kind.per_gpu_hour,
                "expected": kind.per_gpu_hour * fleet.gpu_hours,
                "source": kind.source,
            }
            for kind in kinds
        ],
        "rows": [
            {"policy": row.policy, "seed": row.seed, "incidents": row.incidents, **asdict(row.account)} for row in rows
        ],
        "summary": {policy: {key: _spread(rows, policy, key) for key in COLUMNS} for policy in POLICIES},
    }


def as_table(fleet: FleetYear, rows: Sequence[YearRow]) -> str:
    """Return the comparison for people: means, and the standard deviation from seed to seed."""
    width = max(map(len, POLICIES))
    incidents = mean(row.incidents for row in rows)
    sick = mean(row.account.sick_in + row.account.sick_out for row in rows)
    size = f"{fleet.nodes} nodes of {fleet.gpus_per_node} GPUs, {fleet.days:g} days: {fleet.gpu_hours:,.0f} GPU-hours"
    lines = [
        f"{size}; {incidents:,.0f} incidents, {sick:,.0f} GPU-hours sick",
        "  ".join((" " * width, *(f"{name:>22}" for name in COLUMNS.values()))),
    ]
    for policy in POLICIES:
        cells = (_spread(rows, policy, key) for key in COLUMNS)
        shown = (f"{cell['mean']:,.0f} ± {cell['deviation']:,.0f}" for cell in cells)
        lines.append("  ".join((f"{policy:<{width}}", *(f"{cell:>22}" for cell in shown))))
    return "\n".join(lines)


def as_kinds(kinds: Sequence[IncidentKind], rows: Sequence[YearRow]) -> str:
    """Return where the figures come from: means of hours lost, hours offered and jobs ended, by what befell the GPU."""
    width = max(len(kind.name) for kind in kinds)
    lines = [
        "healthy GPU-hours lost / sick GPU-hours offered / jobs ended",
        "  ".join((" " * width, *map(_cell, POLICIES))),
    ]
    for kind in kinds:
        cells = (
            " / ".join(f"{mean(figures):,.0f}" for figures in zip(*_of_kind(rows, policy, kind.name), strict=True))
            for policy in POLICIES
        )
        lines.append("  ".join((f"{kind.name:<{width}}", *map(_cell, cells))))
    return "\n".join(lines)


def _of_kind(rows: Sequence[YearRow], policy: str, kind: str) -> list[tuple[float, float, float]]:
    accounts = [row.account for row in rows if row.policy == policy]
    return [
        (each.lost_by_kind.get(kind, 0.0), each.offered_by_kind.get(kind, 0.0), each.ended_by_kind.get(kind, 0.0))
        for each in accounts
    ]


def _cell(cell: str) -> str:
    return f"{cell:>24}"


def _spread(rows: Sequence[YearRow], policy: str, key: str) -> dict[str, float]:
    figures = [float(getattr(row.account, key)) for row in rows if row.policy == policy]
    return {"mean": mean(figures), "deviation": stdev(figures) if len(figures) > 1 else 0.0}
