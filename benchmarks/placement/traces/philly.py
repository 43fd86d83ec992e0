"""Microsoft's Philly trace (ATC'19) as the authors of Pollux extracted it: when jobs came, how long they ran, on how many GPUs.

`philly_jobs*.csv`: timestamp, duration (seconds, all attempts), num_gpus, cluster (the virtual cluster).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.placement.traces.files import MOST_GPUS, BadTrace, amount, read_rows, tables, whole

FILES = "philly_jobs*.csv"
COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


@dataclass(frozen=True, slots=True)
class PhillyJob:
    """One row."""

    arrival_s: float
    """Since 1970; the trace's clock is taken for UTC."""
    duration_s: float
    gpus: int
    cluster: str


def read_philly(folder: Path) -> list[PhillyJob]:
    """Return all jobs, oldest first, at least one; raises `BadTrace`."""
    found = tables(folder, FILES)
    if len(found) != 1:
        raise BadTrace(f"{folder} holds {len(found)} files {FILES} or .csv.gz, one is needed")
    path = next(iter(found.values()))
    jobs = read_rows(path, COLUMNS, _job)
    if not jobs:
        raise BadTrace(f"{path} has no job")
    return sorted(jobs, key=lambda job: job.arrival_s)


def _job(row: dict[str, str]) -> PhillyJob:
    gpus, duration_s = whole(row, "num_gpus", MOST_GPUS), amount(row, "duration")
    if gpus < 1:
        raise ValueError("a job without GPUs")
    arrival = datetime.fromisoformat(row["timestamp"])
    return PhillyJob(arrival.replace(tzinfo=arrival.tzinfo or UTC).timestamp(), duration_s, gpus, row["cluster"])
