"""Extenders that a `fork_server` of this process starts, in place of `subprocess.Popen`."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO

_ROOT = Path(__file__).parents[2]
_LONGEST_ANSWER = 100
_SECONDS_TO_END = 60.0
"""A server has nothing to do before it ends."""


class Forked:
    """A supervisor that was forked; it has the part of `subprocess.Popen` that a `Component` needs."""

    def __init__(self, pid: int, stdin: BinaryIO, status: int) -> None:
        self.pid = pid
        self.stdin = stdin
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """Return the exit status; `None` while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once it has ended; raises `subprocess.TimeoutExpired`."""
        status = self._ended(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("supervisor", timeout)
        return status

    def _ended(self, within_seconds: float | None) -> int | None:
        if self.returncode is None and _can_be_read(self._status, within_seconds):
            said = os.read(self._status, _LONGEST_ANSWER)
            os.close(self._status)
            self.returncode = int(said) if said else -signal.SIGKILL
        return self.returncode


def _can_be_read(fd: int, within_seconds: float | None) -> bool:
    """Wait until there is something to read, or the end: by `poll`, because `select` refuses files above the 1024th."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if within_seconds is None else 1000 * within_seconds))


class _ForkServer:
    """One server, with its end of the connection."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.cluster.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def start(self, command: Sequence[str], folder: Path, log: BinaryIO) -> Forked:
        """Have a supervisor and its program started in a folder."""
        request = {"command": [*command], "folder": str(folder), "environment": dict(os.environ)}
        orders, stdin = os.pipe()
        status, theirs = os.pipe()
        with self._turn:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [orders, theirs, log.fileno()])
            os.close(orders)
            os.close(theirs)
            pid = self._socket.recv(_LONGEST_ANSWER)
        if not pid:
            raise OSError(
                f"the fork server has ended with {self._process.wait(_SECONDS_TO_END)}: it starts no {command}"
            )
        return Forked(int(pid), os.fdopen(stdin, "wb", buffering=0), status)

    def end(self) -> None:
        """Let the server end; what it has started is its owners'."""
        self._socket.close()
        self._process.wait(_SECONDS_TO_END)


@cache
def fork_server() -> _ForkServer:
    """Return this process's server, which starts with the first request."""
    server = _ForkServer()
    atexit.register(server.end)
    return server
