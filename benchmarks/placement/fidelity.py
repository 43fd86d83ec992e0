"""How near the baselines come to the figures that FGD's authors published for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from benchmarks.placement.traces.files import read_rows

PUBLISHED_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "01-Random": "random",
        "02-DotProd": "dot-product",
        "03-GpuClustering": "gpu-clustering",
        "04-GpuPacking": "gpu-packing",
        "05-BestFit": "best-fit",
        "06-FGD": "fgd",
    }
)
"""Name in the published tables → our name."""


def published(folder: Path) -> dict[tuple[str, str], dict[int, float]]:
    """Return (workload, policy) → seed → allocation in percent at 130 % asked for, of `fgd_expected_alloc_pct.csv.gz`."""
    found: dict[tuple[str, str], dict[int, float]] = {}

    def take(row: dict[str, str]) -> None:
        key = row["workload"].removeprefix("openb_pod_list_"), PUBLISHED_NAMES[row["sc_policy"]]
        found.setdefault(key, {})[int(row["seed"])] = float(row["130"])

    read_rows(folder / "fgd_expected_alloc_pct.csv.gz", ("workload", "sc_policy", "seed", "130"), take)
    return found
