"""Rows C19, C20, C22, C26, A3–A5 and W4–W7: 200 seeds with all faults mixed break no rule, and meet all there is to meet."""

from __future__ import annotations

import os

import pytest

from tests.simulation.__main__ import main
from tests.simulation.faults import EVENTS, PROCESS_FAULTS, REQUEST_FAULTS, STREAM_FAULTS
from tests.simulation.soak import Tally, soak

pytestmark = pytest.mark.slow
SEEDS = range(200)


@pytest.fixture(scope="module")
def found() -> Tally:
    """Run the seeds once, on all cores."""
    return soak(SEEDS, jobs=os.cpu_count() or 1)


def test_no_seed_breaks_an_invariant(found: Tally) -> None:
    """INV1 to INV7 and the rules beside them hold in every run; a seed that is named here replays as it is."""
    assert found.seeds == len(SEEDS)
    assert found.broken == {}


@pytest.mark.parametrize("fault", [*REQUEST_FAULTS, *STREAM_FAULTS, *PROCESS_FAULTS, *EVENTS])
def test_every_fault_happens(found: Tally, fault: str) -> None:
    """A fault that never strikes proves nothing."""
    assert found.counters[f"fault: {fault}"] > 0


def test_the_soak_ends_with_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts read the last line and the exit code."""
    assert main(["--seeds", "2", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 seeds, 0 violations"
