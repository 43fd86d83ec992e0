"""All cells of an experiment, on several processes; the result does not depend on how many."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from benchmarks.placement.processes import mapped
from benchmarks.placement.registry import SCENARIOS
from benchmarks.placement.rows import Row

SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: what is simulated, by whom, and with which random numbers."""

    scenario: str
    trace: Path | None
    workload: str
    policy: str
    seed: int


def run_cells(cells: Sequence[Cell], jobs: int) -> list[Row]:
    """Run the cells on `jobs` processes and return their rows in the order of the cells; progress goes to stderr.

    Raises `ProcessLost`, and what a cell raises.
    """
    if jobs <= 1 or len(cells) <= 1:
        found = list(_watched(map(run_cell, cells), len(cells)))
    else:
        with mapped(run_cell, cells, min(jobs, len(cells))) as results:
            found = list(_watched(results, len(cells)))
    return [row for rows in found for row in rows]


def run_cell(cell: Cell) -> list[Row]:
    """Run one cell in this process."""
    return SCENARIOS[cell.scenario](cell.trace).run(cell.workload, cell.policy, cell.seed)


def _watched(results: Iterable[list[Row]], total: int) -> Iterator[list[Row]]:
    """Pass the results on and write how far they are, how fast, and how long it will still take."""
    begin, told = monotonic(), 0.0
    in_place = sys.stderr.isatty()
    for done, rows in enumerate(results, start=1):
        yield rows
        seconds = monotonic() - begin
        if done < total and seconds - told < (0.1 if in_place else SECONDS_BETWEEN_LINES):
            continue
        told = seconds
        left = seconds / done * (total - done)
        line = f"{done}/{total} runs, {done / seconds:.2f} a second, {left:.0f} s left"
        sys.stderr.write(f"\r{line:<60}" if in_place and done < total else f"{line}\n")
        sys.stderr.flush()
