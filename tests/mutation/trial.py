"""A pytest plugin that collects the tests once and tries each mutant in a fork, on the tests that reach its lines.

A test that fails ends its fork at once, and so does one that takes far longer than it did on the whole product.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.transplant import transplant

LONGEST_SECONDS = 1.5
"""Tests that take longer are left out."""
_CAUGHT, _SURVIVED, _SAME, _OUT_OF_TIME, _FAILED = 1, 0, 3, 4, 9


class Fate(StrEnum):
    """What became of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    UNFINISHED = "survived what there was time for"
    UNREACHED = "no test reaches it"
    SAME = "compiles to the same"


@dataclass
class Reach:
    """What each test took, and where it came by."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    """Test → file and line."""


class Trial:
    """One run of pytest."""

    def __init__(self, mutants: Sequence[Mutant], seconds: float, tell: Callable[[Mutant, Fate, str], None]) -> None:
        self._mutants = mutants
        self._seconds = seconds
        self._tell = tell
        self._files = {str(mutant.path.resolve()) for mutant in mutants}
        self._is_on_trial = False
        self._kills: Counter[tuple[str, str]] = Counter()

    def pytest_configure(self) -> None:
        """Let Hypothesis neither remember nor shrink what mutants do."""
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", deadline=None, database=None, derandomize=True, phases=phases)
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """End a fork with its first failure; nobody reads how it failed."""
        if self._is_on_trial and call.excinfo and not call.excinfo.errisinstance(pytest.skip.Exception):
            os._exit(_CAUGHT)
        return (yield)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find out what each test reaches, then try all mutants."""
        items = {item.nodeid: item for item in session.items}
        reach = self._look(list(items.values()))
        print(f"{len(reach.seconds)} of {len(items)} tests, {sum(reach.seconds.values()):.0f} s", file=sys.stderr)
        by_line: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for name, lines in reach.lines.items():
            for line in lines:
                by_line[line].add(name)
        for mutant in self._mutants:
            path = str(mutant.path.resolve())
            own = range(mutant.first_line, mutant.last_line + 1)
            names = {
                name
                for (file, line), found in by_line.items()
                if file == path and (line in own or not mutant.is_in_function)
                for name in found
            }
            order = sorted(names, key=lambda name: (-self._promise(mutant, name), reach.seconds[name], name))
            self._tell(mutant, *self._try(mutant, [items[name] for name in order], reach))
        return True

    def _promise(self, mutant: Mutant, test: str) -> int:
        """Return how likely a test is to notice: if it did so of the same function, or bears the module's name."""
        return 2 * self._kills[mutant.function, test] + (f"test_{mutant.path.stem}" in test)

    def _look(self, items: Sequence[pytest.Item]) -> Reach:
        with tempfile.NamedTemporaryFile() as file:
            if (child := os.fork()) == 0:
                _be_quiet()
                Path(file.name).write_bytes(pickle.dumps(self._reach(items)))
                os._exit(0)
            os.waitpid(child, 0)
            reach: Reach = pickle.loads(Path(file.name).read_bytes())
        return reach

    def _reach(self, items: Sequence[pytest.Item]) -> Reach:
        reach, failed = Reach(), set[str]()

        class Failures:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if not report.passed:
                    failed.add(report.nodeid)

        items[0].config.pluginmanager.register(Failures())
        for item, after in zip(items, (*items[1:], None), strict=True):
            lines: set[tuple[str, int]] = set()
            start = time.process_time()
            _follow(self._files, lines)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            sys.settrace(None)
            threading.settrace(None)
            seconds = time.process_time() - start
            if lines and seconds < LONGEST_SECONDS and item.nodeid not in failed:
                reach.seconds[item.nodeid], reach.lines[item.nodeid] = seconds, lines
        return reach

    def _try(self, mutant: Mutant, items: Sequence[pytest.Item], reach: Reach) -> tuple[Fate, str]:
        if not items:
            return Fate.UNREACHED, ""
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            _be_quiet()
            try:
                self._run(mutant, items, reach, writing)
            finally:
                os._exit(_FAILED)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            told = file.read().decode().splitlines()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == _FAILED:
            raise RuntimeError(f"cannot try {mutant}")
        fates = {
            _SURVIVED: Fate.SURVIVED,
            _SAME: Fate.SAME,
            _OUT_OF_TIME: Fate.UNFINISHED,
            -signal.SIGALRM: Fate.UNFINISHED,  # on a busy machine that says nothing of the mutant
        }
        fate, last = fates.get(status, Fate.CAUGHT), told[-1] if told else ""
        if fate is Fate.CAUGHT:
            self._kills[mutant.function, last] += 1
        return fate, last

    def _run(self, mutant: Mutant, items: Sequence[pytest.Item], reach: Reach, told: int) -> None:
        signal.alarm(int(10 * self._seconds))
        module = ".".join(mutant.path.with_suffix("").parts)
        if not transplant(importlib.import_module(module), mutant.broken()):
            os._exit(_SAME)
        self._is_on_trial = True
        for item, after in zip(items, (*items[1:], None), strict=True):
            if time.process_time() > self._seconds:
                os._exit(_OUT_OF_TIME)
            os.write(told, f"{item.nodeid}\n".encode())
            signal.setitimer(signal.ITIMER_PROF, 3.0 + 10 * reach.seconds[item.nodeid])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        os._exit(_SURVIVED)


def _follow(files: set[str], lines: set[tuple[str, int]]) -> None:
    """Take note of the lines of these files that run from now on."""

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return inside

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return inside(frame, event, argument) if frame.f_code.co_filename in files else None

    threading.settrace(on_call)
    sys.settrace(on_call)


def _be_quiet() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)
