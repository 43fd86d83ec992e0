"""A component ends when it is told to, whatever it thinks of that, and its log says what it did."""

import gc
import socket
import sys
import weakref
from pathlib import Path

import pytest

from benchmarks.processes.process import free_port
from tests.cluster.component import Component, StartFailed
from tests.cluster.polling import eventually

NOWHERE = "http://127.0.0.1:1/"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
LARGE = """
import socket, time
memory = b"x" * (200 << 20)
server = socket.create_server(("127.0.0.1", {port}))
print("listening", flush=True)
time.sleep(600)
"""
BROKEN = "raise SystemExit('no such flag')"


def python(script: str, folder: Path) -> Component:
    return Component("python", [sys.executable, "-c", script], folder, NOWHERE)


def test_program_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stop ends within its grace, because SIGKILL follows."""
    monkeypatch.setattr(Component, "stop_grace_seconds", 0.1)
    stubborn = python(STUBBORN, tmp_path)
    stubborn.start()
    eventually(lambda: "up" in stubborn.log_tail())
    stubborn.stop()
    assert not stubborn.is_running


def test_failed_start_quotes_the_log(tmp_path: Path) -> None:
    """The error names the component, its exit status and its last words."""
    broken = python(BROKEN, tmp_path)
    broken.start()
    with pytest.raises(StartFailed, match=r"python: ended during its start with status 1; .*\nno such flag"):
        broken.wait_ready()


def test_log_goes_on_over_a_restart(tmp_path: Path) -> None:
    """What a component said before it was killed stays readable."""
    talker = python("import time; print('hello', flush=True); time.sleep(600)", tmp_path)
    start_until_it_said(talker, "hello\n")
    start_until_it_said(talker, "hello\nhello\n")


def test_a_program_that_nobody_refers_to_runs_on(tmp_path: Path) -> None:
    """Its supervisor would take its owner for dead, and remove a folder that others use."""

    def start() -> weakref.ref[Component]:
        talker = python("import time; print('hello', flush=True); time.sleep(600)", tmp_path)
        talker.start()
        eventually(lambda: talker.log_tail() == "hello\n")
        return weakref.ref(talker)

    started = start()
    gc.collect()
    running = started()
    assert running is not None
    running.kill()
    del running
    gc.collect()
    assert started() is None


def test_a_killed_program_leaves_its_port_to_the_next_start(tmp_path: Path) -> None:
    """It is gone when the kill returns, however long the kernel takes to get its memory back."""
    port = free_port()
    large = python(LARGE.format(port=port), tmp_path)
    for starts in range(1, 4):
        large.start()
        eventually(lambda: large.log_tail().count("listening") == starts)  # noqa: B023 - awaited here
        large.kill()
        with socket.create_server(("127.0.0.1", port)):
            pass


def start_until_it_said(talker: Component, everything: str) -> None:
    talker.start()
    eventually(lambda: talker.log_tail() == everything)
    talker.kill()
