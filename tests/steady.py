"""Run tests again and again while a busy loop occupies every core: `python -m tests.steady tests/process/test_watches.py`.

A test that waits for a time, where it should wait for an event, fails here sooner or later.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_TEST_RUN = 5
"""The exit code of pytest when it has collected nothing."""


def main() -> int:
    """Print each test that failed, and in how many rounds; exit with 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.steady", description=__doc__)
    parser.add_argument("tests", nargs="+", help="files, folders or test ids, or options of pytest after `--`")
    parser.add_argument("--rounds", type=int, default=20, help="how often each test runs (default: 20)")
    options = parser.parse_args()
    failures: Counter[str] = Counter()
    with busy_cores(), tempfile.TemporaryDirectory(prefix="steady-") as folder:
        for number in range(1, options.rounds + 1):
            report = Path(folder) / f"{number}.xml"
            code = _run_once(options.tests, report)
            failed = failed_tests(report) if report.exists() else []
            if code and not failed:
                print(f"round {number}: pytest ended with {code} before any test had failed", file=sys.stderr)
                return 2
            failures.update(failed)
            print(f"round {number} of {options.rounds}: {', '.join(failed) or 'passed'}", flush=True)
    for test, times in failures.most_common():
        print(f"failed in {times} of {options.rounds} rounds: {test}")
    return 1 if failures else 0


@contextmanager
def busy_cores() -> Iterator[None]:
    """Occupy every core with a busy loop until the block ends."""
    context = multiprocessing.get_context("spawn")
    loops = [context.Process(target=_spin, args=(os.getpid(),), daemon=True) for _ in range(os.cpu_count() or 1)]
    for loop in loops:
        loop.start()
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.join()


def failed_tests(report: Path) -> list[str]:
    """Return the tests that failed or had an error, from a report in JUnit's format, each once."""
    cases = ET.parse(report).iter("testcase")
    return list(
        dict.fromkeys(
            f"{case.get('classname')}::{case.get('name')}"
            for case in cases
            if case.find("failure") is not None or case.find("error") is not None
        )
    )


def _run_once(tests: list[str], report: Path) -> int:
    """Run pytest once, print its output where it fails, and return its exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        print(done.stdout, file=sys.stderr, flush=True)
    if done.returncode == _NO_TEST_RUN:
        report.unlink(missing_ok=True)
    return done.returncode


def _spin(parent: int) -> None:
    """Use a core for as long as the parent lives."""
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


if __name__ == "__main__":
    sys.exit(main())
