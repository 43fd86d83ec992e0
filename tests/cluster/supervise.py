"""Runs one program for as long as the process that asked for it lives.

Usage: supervise.py STATE_FOLDER [--in PID] PROGRAM [ARGUMENT...], with a pipe from the owner as standard input.

- A byte on the pipe is a signal for the program: `!` asks it to end (SIGTERM), after which the pipe stays open until it has;
  `s` and `c` stop it and let it go on (SIGSTOP, SIGCONT); `k` kills it (SIGKILL), and after its end the whole group.
- The end of the pipe means that the owner died, be it by SIGKILL: the program is killed at once and the state
  folder removed. Only a pipe tells this on every system, in every thread, and without a race at the start.
- The program shares this process's group, so one signal to the group reaches both, and what the program has started.
- With `--in` the program starts in the mount, network and PID namespaces of that process, and ends with the last.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

SIGNALS = {b"!": signal.SIGTERM, b"s": signal.SIGSTOP, b"c": signal.SIGCONT, b"k": signal.SIGKILL}


def main(state_folder: str, *command: str) -> int:
    """Run `command` to its end and return its exit status, as a shell would report it."""
    where: AbstractContextManager[None] = nullcontext()
    if command[0] == "--in":
        where, command = _namespaces_of(int(command[1])), command[2:]
    with where:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    return supervise(program, state_folder)


class Program(Protocol):
    """A child of this process, as `subprocess.Popen` has it."""

    def send_signal(self, number: int, /) -> None:
        """Send it a signal."""

    def kill(self) -> None:
        """End it at once."""

    def wait(self) -> int:
        """Wait for its end; the status is negative after a signal."""


def supervise(program: Program, state_folder: str) -> int:
    """Obey the owner until the program ends, and return its exit status, as a shell would report it."""
    orphaned, killed = threading.Event(), threading.Event()

    def obey_owner() -> None:
        while order := os.read(sys.stdin.fileno(), 1):
            if SIGNALS[order] == signal.SIGKILL:
                killed.set()
            program.send_signal(SIGNALS[order])
        orphaned.set()
        program.kill()

    threading.Thread(target=obey_owner, daemon=True).start()
    status = program.wait()
    if orphaned.is_set():
        shutil.rmtree(state_folder, ignore_errors=True)
    if killed.is_set():
        os.killpg(0, signal.SIGKILL)
    return status if status >= 0 else 128 - status


@contextmanager
def _namespaces_of(pid: int) -> Iterator[None]:
    """Start children in the namespaces of `pid` while the block runs; then be at home again, where threads can start."""
    folder = Path.cwd()
    theirs, ours = ([_open(process, kind) for kind in ("pid", "net", "mnt")] for process in (pid, "self"))
    _enter(theirs)
    try:
        yield
    finally:
        _enter(ours)
        os.chdir(folder)


def _open(process: int | str, kind: str) -> int:
    return os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY)


def _enter(namespaces: list[int]) -> None:
    for namespace in namespaces:
        if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
