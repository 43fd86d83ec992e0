"""One seed decides everything: its trace is the same in every process and at every time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from tests.simulation.run import Result, run

SEED = 7


@pytest.fixture(scope="module")
def first() -> Result:
    """Run the seed once for all tests that compare with it."""
    return run(SEED)


@pytest.mark.slow
def test_a_seed_replays_bit_for_bit(first: Result) -> None:
    """Two runs in one process write the same lines, and end with the same digest."""
    second = run(SEED)
    assert first.lines == second.lines
    assert first.digest == second.digest


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_a_seed_replays_in_another_process(hash_seed: str, first: Result) -> None:
    """No order of a set or a dictionary of strings leaks into it."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(SEED)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600).stdout
    assert printed.splitlines() == [*first.lines, f"seed {SEED}, digest {first.digest}, 0 violations"]


@pytest.mark.slow
def test_the_garbage_collector_decides_nothing() -> None:
    """It cancels timers of abandoned tasks whenever it runs; this seed has timers of the same moment."""
    thresholds = gc.get_threshold()
    try:
        gc.set_threshold(0)
        never = run(SEED + 1).digest
        gc.set_threshold(50, 2, 2)
        assert run(SEED + 1).digest == never
    finally:
        gc.set_threshold(*thresholds)


@pytest.mark.slow
def test_another_seed_is_another_run(first: Result) -> None:
    """Else the soak would try the same thing again and again."""
    assert first.digest != run(SEED + 1).digest
