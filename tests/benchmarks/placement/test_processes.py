"""Work on several processes: what becomes of it when somebody ends it, or one of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from benchmarks.placement.processes import ProcessLost, mapped
from tests.cluster.polling import eventually

PATIENCE_S = 60.0


def square(number: int) -> int:
    """Work that ends."""
    return number * number


def die(_: int) -> int:
    """End as a process does when the kernel has no memory for it."""
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def sleep(_: int) -> int:
    """Work that nobody waits for."""
    time.sleep(600)
    return 0


@pytest.mark.slow
def test_results_come_in_the_order_of_the_items() -> None:
    """Whoever was done first."""
    with mapped(square, range(5), 2) as results:
        assert list(results) == [0, 1, 4, 9, 16]


@pytest.mark.slow
def test_a_process_that_is_killed_is_an_error() -> None:
    """Not a wait for its result."""
    with pytest.raises(ProcessLost, match="--jobs"), mapped(die, [1, 2], 2) as results:
        list(results)


def test_leaving_early_ends_the_processes() -> None:
    """Though they are in the middle of something."""
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), mapped(sleep, [1, 2], 2):
        raise KeyboardInterrupt
    assert time.monotonic() - begin < PATIENCE_S


@pytest.mark.slow
def test_ctrl_c_ends_a_run_without_a_traceback() -> None:
    """Exit code 130, also while the processes are still importing."""
    command = [sys.executable, "-m", "benchmarks", "placement", "--scenario", "link-graph", "--jobs", "2"]
    with heeding_interrupts(), subprocess.Popen(command, stderr=PIPE, text=True, start_new_session=True) as run:
        eventually(lambda: sum(map(cpu_ticks, children(run.pid))) > 30)  # imports take longer, and a run much longer
        os.killpg(run.pid, signal.SIGINT)
        _, said = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, said) == (130, "")


@contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Let programs that start meanwhile heed Ctrl-C, even if these tests were started to ignore it (`nohup`, some CI)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def children(pid: int) -> list[str]:
    """Return the processes that it has started."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def cpu_ticks(pid: str) -> int:
    """Return what a process has computed, in hundredths of a second."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
