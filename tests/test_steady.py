"""`make steady`: tests that pass by chance are listed."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from tests.invoking import run
from tests.steady import busy_cores

pytestmark = pytest.mark.slow

PASSES_EVERY_SECOND_TIME = """
from pathlib import Path

def test_flaky():
    marks = Path(__file__).with_name("marks")
    marks.write_text(marks.read_text() + "x" if marks.exists() else "x")
    assert len(marks.read_text()) % 2

def test_firm():
    pass
"""


def test_a_test_that_fails_now_and_then_is_listed(tmp_path: Path) -> None:
    """By its name, with the number of rounds in which it failed."""
    file = tmp_path / "test_it.py"
    file.write_text(PASSES_EVERY_SECOND_TIME)
    done = run("tests.steady", str(file), "--rounds", "2")
    assert done.returncode == 1
    assert "failed in 1 of 2 rounds: test_it::test_flaky" in done.stdout
    assert "test_firm" not in done.stdout


def test_a_firm_test_passes(tmp_path: Path) -> None:
    """Each round is reported, and the exit code is 0."""
    file = tmp_path / "test_it.py"
    file.write_text("def test_firm():\n    pass\n")
    done = run("tests.steady", str(file), "--rounds", "1")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["round 1 of 1: passed"])


@pytest.mark.parametrize("content", ["", "import nothing_of_this_name"], ids=["no test", "an import fails"])
def test_what_cannot_run_is_no_success(tmp_path: Path, content: str) -> None:
    """A file without tests, or one that cannot be imported, does not count as steady."""
    file = tmp_path / "test_it.py"
    file.write_text(content)
    assert run("tests.steady", str(file), "--rounds", "1").returncode != 0


def test_every_core_is_occupied() -> None:
    """One busy loop runs on each core, and all end with the block."""
    with busy_cores():
        assert len(multiprocessing.active_children()) == os.cpu_count()
    assert not multiprocessing.active_children()
