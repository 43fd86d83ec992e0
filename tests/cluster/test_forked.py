"""An extender that is forked behaves as one that is started: it ends when asked, when killed, and with its owner."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks.processes.kubeconfig import write_kubeconfig
from tests.cluster.extender_process import PROGRAM
from tests.cluster.fork_server import Child
from tests.cluster.forked import Forked, fork_server
from tests.cluster.polling import eventually

OWNER = """
import sys, time
from pathlib import Path
from tests.cluster.fork_server import Child
from tests.cluster.forked import fork_server

folder = Path(sys.argv[1])
with (folder / "log").open("ab") as log:
    forked = fork_server().start(sys.argv[2:], folder, log)
print(forked.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def waiting(tmp_path: Path) -> list[str]:
    """Return the command of an extender that waits for an API server, which is never there."""
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://127.0.0.1:1", user="nobody", token="none")
    return [str(PROGRAM), "--set", f"kubernetes.kubeconfig={kubeconfig}", "--set", "listen.port=0"]


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[Forked]:
    """Fork a program, which ends with the block at the latest."""
    with (folder / "log").open("ab") as log:
        forked = fork_server().start(command, folder, log)
    with forked.stdin:
        yield forked


def said(folder: Path) -> str:
    return (folder / "log").read_text()


def test_program_that_ends_leaves_its_status_and_what_it_printed(tmp_path: Path) -> None:
    """Both as if it had been started from the command line."""
    with running([str(PROGRAM), "--version"], tmp_path) as printing:
        assert printing.wait(60) == 0
    assert said(tmp_path).strip() == version("gputopo")
    with running([str(PROGRAM), "--set", "nonsense"], tmp_path) as mistaken:
        assert mistaken.wait(60) == 2
    assert "--set nonsense: not KEY=VALUE" in said(tmp_path)


def test_program_ends_when_it_is_asked_to(waiting: list[str], tmp_path: Path) -> None:
    """By SIGTERM, as a pod's containers are."""
    with running(waiting, tmp_path) as forked:
        eventually(lambda: "watch interrupted" in said(tmp_path))
        assert forked.poll() is None
        os.write(forked.stdin.fileno(), b"!")
        assert forked.wait(60) == 0


def test_program_that_is_killed_is_gone(waiting: list[str], tmp_path: Path) -> None:
    """With its supervisor, which tells its owner nothing any more."""
    with running(waiting, tmp_path) as forked:
        eventually(lambda: "watch interrupted" in said(tmp_path))
        os.killpg(forked.pid, signal.SIGKILL)
        assert forked.wait(60) == -signal.SIGKILL
        eventually(lambda: not runs(forked.pid))


def test_program_can_be_killed_at_once(waiting: list[str], tmp_path: Path) -> None:
    """Its process group is there when its owner hears of it."""
    for _ in range(10):
        with running(waiting, tmp_path) as forked:
            os.killpg(forked.pid, signal.SIGKILL)
            assert forked.wait(60) == -signal.SIGKILL


def test_signal_to_a_program_that_has_ended_goes_nowhere() -> None:
    """Its supervisor hears of its owner's end at any time, and says nothing about that in the program's log."""
    child = Child(os.posix_spawnp("false", ["false"], os.environ))
    assert child.wait() == 1
    child.kill()


def test_owner_may_have_more_than_a_thousand_files_open(tmp_path: Path) -> None:
    """As a process has that has run many tests: `select` refuses the next one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    with ExitStack() as files:
        for _ in range(1100):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        with running([str(PROGRAM), "--version"], tmp_path) as forked:
            assert forked.wait(60) == 0


def test_program_ends_with_its_owner(waiting: list[str], tmp_path: Path) -> None:
    """However that ends."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, tmp_path, *waiting], stdout=subprocess.PIPE)
    with owner:
        assert owner.stdout is not None
        supervisor = int(owner.stdout.readline())
        eventually(lambda: "watch interrupted" in said(tmp_path))
        assert runs(supervisor)
        owner.kill()
    eventually(lambda: not runs(supervisor))


def runs(group: int) -> bool:
    """Whether a process of a group still runs."""
    with suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False
