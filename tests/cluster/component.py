"""One program of the control plane as a process: started, watched, stopped or killed, and started again.

It runs under `supervise.py`, so it never outlives the process that holds its `Component`. Where a program only has to run for the
length of a block, and nobody kills or freezes it, `benchmarks.processes.process.running` is enough.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

from benchmarks.processes.process import Process
from tests.cluster.forked import Forked
from tests.cluster.polling import TimedOut, eventually

SUPERVISOR = Path(__file__).with_name("supervise.py")
START_LIMIT_SECONDS = 180.0
_SECONDS_TO_DIE = 60.0
"""From a SIGKILL to the end of a program and its supervisor."""
GO_SETTINGS = {"GOGC": "800", "GOMEMLIMIT": "2GiB", "GOMAXPROCS": "1"}
"""For programs in Go. By default, a quarter of their CPU time goes into garbage collection, and a fifth into waking threads."""


_running: set[Component] = set()
"""Components whose program was started and not seen to end. One that nobody refers to would be garbage, and so would its pipe.

Then its supervisor takes its owner for dead, and removes the state folder, which all programs of a control plane share."""


class StartFailed(Exception):
    """A component ended, or was not ready in time; the text ends with its last log lines."""


class Component:
    """A program with its arguments, state folder and log; `start` may follow `stop` or `kill`."""

    stop_grace_seconds = 5.0
    """Before a program that was asked to end is killed."""

    def __init__(self, name: str, command: Sequence[str | Path], state: Path, ready_url: str) -> None:
        self.name = name
        self.log = state / f"{name}.log"
        self._command = [str(word) for word in command]
        self._state = state
        self._ready_url = ready_url
        self._process: subprocess.Popen[bytes] | Forked | None = None

    @property
    def is_running(self) -> bool:
        """Whether the program was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the program, in a process group of its own so that Ctrl-C does not reach it."""
        assert not self.is_running, f"{self.name} is running already"
        self._forget()
        with self.log.open("ab") as log:
            self._process = self._spawn(log)
        _running.add(self)

    def wait_ready(self) -> None:
        """Return when the started program answers its readiness URL with 200.

        Raises:
            StartFailed: it ended before that, or three minutes have passed.

        """
        process = self._process
        assert process is not None, f"{self.name} was not started"
        try:
            eventually(lambda: process.poll() is not None or _answers_ok(self._ready_url), START_LIMIT_SECONDS)
        except TimedOut:
            raise self._start_failed(f"not ready after {START_LIMIT_SECONDS:.0f} s") from None
        if process.returncode is not None:
            raise self._start_failed(f"ended during its start with status {process.returncode}")

    def run(self) -> None:
        """Start the program, and return when it is ready; raises as `wait_ready` does."""
        self.start()
        self.wait_ready()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run the program for the length of a `with` block, which begins when it is ready."""
        try:
            self.run()
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        """Ask the program to end; kill it if that takes more than `stop_grace_seconds`."""
        if self._process is None:
            return
        try:
            self._ask_to_end(self._process)
        except subprocess.TimeoutExpired:
            self.kill()
        self._forget()

    def ask_to_end(self) -> None:
        """Ask the program to end, and do not wait."""
        self._order(b"!")

    def kill(self) -> None:
        """End the program with SIGKILL, as a power cut would; return when it is gone, and its port free.

        The supervisor waits for that. One signal to both would end the supervisor first, which has less memory to give back.
        """
        if self._process is not None and self.is_running:
            self._order(b"k")
            self._process.wait(_SECONDS_TO_DIE)
        self._forget()

    def freeze(self) -> None:
        """Stop the program where it is, as a machine without time for it would; its connections stay open."""
        self._order(b"s")

    def thaw(self) -> None:
        """Let a frozen program go on."""
        self._order(b"c")

    @property
    def is_frozen(self) -> bool:
        """Whether it has stopped where it was (Linux)."""
        return self._supervised.is_frozen

    def memory_bytes(self) -> int:
        """Return the memory that the program keeps resident (Linux)."""
        return self._supervised.memory_bytes()

    def logged(self) -> list[dict[str, Any]]:
        """Return the log's lines that are JSON objects, over all its starts; the last may be half written, or a killed one's."""
        return [facts for line in self.log.read_text(errors="replace").splitlines() if (facts := _facts(line))]

    def log_tail(self, lines: int = 25) -> str:
        """Return the last lines of the log, over all its starts."""
        if not self.log.exists():
            return ""
        with self.log.open(errors="replace") as log:
            return "".join(deque(log, maxlen=lines))

    def cpu_seconds(self) -> float:
        """Return what the program has computed since its start, on all cores together (Linux)."""
        return self._supervised.cpu_seconds()

    @property
    def _supervised(self) -> Process:
        """The program itself, which is the supervisor's only child."""
        assert self._process is not None, f"{self.name} was not started"
        supervisor = self._process.pid
        (program,) = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        return Process(int(program), self.log)

    def _spawn(self, log: BinaryIO) -> subprocess.Popen[bytes] | Forked:
        """Start a supervisor with the program, in a process group and a session of their own."""
        return subprocess.Popen(
            [sys.executable, "-I", "-S", SUPERVISOR, self._state, *self._command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self._state,
            env={**os.environ, **GO_SETTINGS},
            start_new_session=True,
        )

    def _start_failed(self, problem: str) -> StartFailed:
        self.stop()
        return StartFailed(f"{self.name}: {problem}; its last log lines:\n{self.log_tail()}")

    def _forget(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None
        _running.discard(self)

    def _ask_to_end(self, process: subprocess.Popen[bytes] | Forked) -> None:
        self._order(b"!")
        process.wait(self.stop_grace_seconds)

    def _order(self, order: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None, f"{self.name} was not started"
        with suppress(BrokenPipeError):  # it ended by itself
            os.write(self._process.stdin.fileno(), order)


def _facts(line: str) -> dict[str, Any]:
    try:
        facts = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _answers_ok(url: str) -> bool:
    unverified = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(url, timeout=2, context=unverified) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
