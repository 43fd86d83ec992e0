"""The promtool that `promtool/go.mod` pins: Prometheus' own word on rules and expressions."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.cluster.go_build import GoBuild

PROMTOOL = GoBuild(
    Path(__file__).parent / "promtool",
    "promtool",
    ("github.com/prometheus/prometheus/cmd/promtool",),
    ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-tags", "remove_all_sd"),
    "promtool (once, about a minute and a half)",
)


def run(promtool: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it, whatever it says."""
    return subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
