"""One seed decides everything: its trace is the same in every process and at every time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.run import run

SEED = 7


def test_a_seed_replays_bit_for_bit() -> None:
    """Two runs in one process write the same lines, and end with the same digest."""
    first, second = run(SEED), run(SEED)
    assert first.lines == second.lines
    assert first.digest == second.digest


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_a_seed_replays_in_another_process(hash_seed: str) -> None:
    """No order of a set or a dictionary of strings leaks into it."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(SEED)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600).stdout
    here = run(SEED)
    assert printed.splitlines() == [*here.lines, f"seed {SEED}, digest {here.digest}, 0 violations"]


def test_another_seed_is_another_run() -> None:
    """Else the soak would try the same thing again and again."""
    assert run(SEED).digest != run(SEED + 1).digest
