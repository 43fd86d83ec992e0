"""Starts `gputopo-extender` by a fork: what it imports has been imported once, which is most of the CPU time of its start.

Usage: fork_server.py SOCKET, a file descriptor. Each request comes with the read end of the owner's pipe, a pipe for the
exit status and a log. The answer is the PID of a supervisor, which works as `supervise.py` does. The server ends with its owner.
"""

import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tests.cluster.supervise import supervise

PRELOADED = ("extender.web.command", "extender.features.configuration", "extender.web.server")
"""What the extender imports when it starts, and not later."""
_LONGEST_REQUEST = 1 << 20


class Child:
    """A forked process, for its supervisor."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._has_ended = False
        self._turn = threading.Lock()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended: its PID may be another process's by then."""
        with self._turn:
            if not self._has_ended:
                os.kill(self._pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end; the status is negative after a signal."""
        os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        with self._turn:
            self._has_ended = True
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def serve(owner: socket.socket) -> Callable[[], object]:
    """Answer requests until the owner has ended; return in each new process what that has to do."""
    while True:
        message, fds, _, _ = socket.recv_fds(owner, _LONGEST_REQUEST, 3)
        if not message:
            return lambda: None
        pid = os.fork()
        if pid == 0:
            # The owner hears of a group that is there: one that it kills at once would live on otherwise.
            os.setsid()
            owner.send(str(os.getpid()).encode())
            owner.close()
            return _begin(json.loads(message), *fds)
        for fd in fds:
            os.close(fd)


def _begin(request: Any, orders: int, status: int, log: int) -> Callable[[], object]:
    """Become the supervisor of a new program, or in another process the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for fd, number in ((orders, 0), (log, 1), (log, 2)):
        os.dup2(fd, number)
    os.close(orders)
    os.close(log)
    os.chdir(request["folder"])
    pid = os.fork()
    if pid == 0:
        os.close(status)
        return lambda: _run(request)
    return lambda: os.write(status, str(supervise(Child(pid), request["folder"])).encode())


def _run(request: Any) -> None:
    """Be the program, as if it had been started from the command line."""
    from extender.__main__ import main

    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["command"]
    main()


if __name__ == "__main__":
    for name in PRELOADED:
        import_module(name)
    gc.freeze()
    # Nobody waits for supervisors: what becomes of them is on their pipes.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        task = serve(asked)
    task()
