"""Microsoft's Philly trace (ATC'19) as the authors of Pollux extracted it: when jobs came, how long they ran, on how many GPUs.

`philly_jobs*.csv`: timestamp, duration (seconds, all attempts), num_gpus, cluster (the virtual cluster).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.placement.traces.files import BadTrace, read_rows, tables

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
    """Return all jobs, oldest first; raises `BadTrace`."""
    found = tables(folder, "philly_jobs*.csv")
    if len(found) != 1:
        raise BadTrace(f"{folder} holds {len(found)} files philly_jobs*.csv or .csv.gz, one is needed")
    jobs = read_rows(next(iter(found.values())), COLUMNS, _job)
    return sorted(jobs, key=lambda job: job.arrival_s)


def _job(row: dict[str, str]) -> PhillyJob:
    gpus, duration_s = int(row["num_gpus"]), float(row["duration"])
    if gpus < 1 or not 0 <= duration_s < 1e9:
        raise ValueError(f"{gpus} GPUs for {duration_s} s")
    arrival = datetime.fromisoformat(row["timestamp"])
    return PhillyJob(arrival.replace(tzinfo=arrival.tzinfo or UTC).timestamp(), duration_s, gpus, row["cluster"])
