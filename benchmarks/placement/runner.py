"""All cells of an experiment, on several processes; the result does not depend on how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.placement.processes import mapped
from benchmarks.placement.progress import watched
from benchmarks.placement.registry import SCENARIOS
from benchmarks.placement.rows import ResultRow


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: what is simulated, by whom, and with which random numbers."""

    scenario: str
    trace: Path | None
    workload: str
    policy: str
    seed: int


def run_cells(cells: Sequence[Cell], jobs: int, label: str = "") -> list[ResultRow]:
    """Run the cells on `jobs` processes and return their rows in the order of the cells; progress goes to a terminal.

    Raises `ProcessLost`, and what a cell raises.
    """
    if jobs <= 1 or len(cells) <= 1:
        found = list(watched(map(run_cell, cells), len(cells), label))
    else:
        with mapped(run_cell, cells, min(jobs, len(cells))) as results:
            found = list(watched(results, len(cells), label))
    return [row for rows in found for row in rows]


def run_cell(cell: Cell) -> list[ResultRow]:
    """Run one cell in this process."""
    return SCENARIOS[cell.scenario](cell.trace).run(cell.workload, cell.policy, cell.seed)
