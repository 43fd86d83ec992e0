"""Gavel's measured throughputs (OSDI'20): what running apart costs an application, and so how much it communicates.

`gavel_throughputs.csv`: job_type, num_gpus, gpu, steps_per_s_consolidated, steps_per_s_unconsolidated. Rows of V100 count:
GPUs of one p3 machine over NVLink, against one GPU in each of several machines on a 10 Gb/s network.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.placement.speed import traffic_from
from benchmarks.placement.traces.files import BadTrace, amount, read_rows, whole

COLUMNS = ("job_type", "num_gpus", "gpu", "steps_per_s_consolidated", "steps_per_s_unconsolidated")
FAR_GB_PER_S = 1.25
NEAR_GB_PER_S = {2: 40.0, 4: 60.0, 8: 120.0}
"""What rings of so many V100 carry over NVLink: two, three and six links' worth."""


def read_traffic(path: Path) -> dict[tuple[str, int], float]:
    """Return (application, GPUs) → GB sent per second of computing, for the counts that were measured."""
    found: dict[tuple[str, int], float] = {}

    def take(row: dict[str, str]) -> None:
        gpus = whole(row, "num_gpus")
        near, far = (amount(row, column) if row[column] else 0.0 for column in COLUMNS[3:])
        if row["gpu"] == "v100" and gpus in NEAR_GB_PER_S and near > 0 and far > 0:
            found[row["job_type"], gpus] = traffic_from(near / far, NEAR_GB_PER_S[gpus], FAR_GB_PER_S)

    read_rows(path, COLUMNS, take)
    if not found:
        raise BadTrace(f"{path} has no measurement of two or more V100")
    return found
