"""`gputopo-bench monitoring`: two real agents on the fake NVML, one of which samples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvml.library import has_compiler

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="no C compiler to build the fake NVML with")
def test_measures_an_agent_that_samples_beside_one_that_does_not() -> None:
    """Eight GPUs that tell all they can; the page is whole."""
    command = [sys.executable, "-m", "benchmarks", "monitoring", "--seconds", "1", "--scrapes", "2", "-o", "json"]
    played = [sys.executable, "-m", "tests.nvml", "hgx_h100_busy", "--script", "xid_storm", *command]
    done = subprocess.run(played, cwd=ROOT, capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)["rows"]
    assert row["gpus"] == 8
    assert row["series"] >= 8 * 30
    assert row["node_writes_per_hour"] >= 0
    assert min(row["scrape_p50_ms"], row["floor_p50_ms"], row["sample_ms"], row["resident_mib"]) > 0


@pytest.mark.parametrize("asked", [("nowhere", "true"), ("hgx_h100", "--script", "nothing", "true"), ("hgx_h100",), ()])
def test_a_machine_that_is_not_there_is_bad_usage(asked: tuple[str, ...]) -> None:
    """A script or a command that is not there, too, and before anything is built."""
    done = subprocess.run([sys.executable, "-m", "tests.nvml", *asked], cwd=ROOT, check=False)
    assert done.returncode == 2
