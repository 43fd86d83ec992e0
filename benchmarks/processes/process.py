"""A program as a process of its own, for as long as a context is open: ready when the context opens, gone when it closes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import aiohttp

READY_WITHIN_SECONDS = 120.0
STOP_WITHIN_SECONDS = 5.0
_POLL_SECONDS = 0.05
_PORTS = range(20_000, 32_000)
"""Below those that outgoing connections take (32768 and up on Linux).

There a client could occupy a port before its server does. It could even, polling for that server, connect to itself."""
_RESERVATIONS = Path(tempfile.gettempdir(), f"gputopo-ports-{os.getuid()}")
"""Has a byte for each port. Who is given a port locks its byte until he ends, for nobody listens while a server starts again."""
_ports_given_out: set[int] = set()


class NotReady(Exception):
    """A program did not become ready; the text ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Process:
    """A program that runs, and what the kernel knows of it."""

    pid: int
    log: Path

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of what it has printed."""
        return _tail(self.log, lines)

    def cpu_seconds(self) -> float:
        """Return what it has computed since its start, on all cores together (Linux)."""
        of_user, of_system = self._proc("stat").rpartition(")")[2].split()[11:13]
        return (int(of_user) + int(of_system)) / os.sysconf("SC_CLK_TCK")

    def main_thread_cpu_ms(self) -> float:
        """Return what its main thread, which is where an event loop runs, has computed; to the nanosecond (Linux)."""
        return int(self._proc("schedstat").split()[0]) / 1e6

    def threads_cpu_ms(self) -> float:
        """Return what all its threads that still run have computed; to the nanosecond (Linux)."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6

    def memory_bytes(self) -> int:
        """Return what it keeps resident now (Linux)."""
        return self._status_bytes("VmRSS")

    def peak_memory_bytes(self) -> int:
        """Return the most that it has ever kept resident (Linux)."""
        return self._status_bytes("VmHWM")

    @property
    def is_frozen(self) -> bool:
        """Whether it has been stopped where it was (Linux)."""
        return self._proc("stat").rpartition(")")[2].split()[0] == "T"

    def _status_bytes(self, field: str) -> int:
        fields = dict(line.split(":", 1) for line in self._proc("status").splitlines())
        return int(fields[field].split()[0]) << 10

    def _proc(self, file: str) -> str:
        return Path(f"/proc/{self.pid}/{file}").read_text()


@asynccontextmanager
async def running(name: str, command: Sequence[str | Path], folder: Path, ready_url: str) -> AsyncIterator[Process]:
    """Run `command` with its log in `folder`, and enter when `ready_url` answers 200; raises `NotReady`.

    It has a session of its own, so that Ctrl-C reaches us alone, and whoever depends on another one ends first.
    """
    log = folder / f"{name}.log"
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        await _wait_ready(name, process, ready_url, log)
        yield Process(process.pid, log)
    finally:
        await _stop(process)


def free_port() -> int:
    """Return a loopback port that nobody listens on at the moment, and that no other call has returned.

    Calls of our other processes count as well, for as long as these run.
    """
    while True:
        port = secrets.choice(_PORTS)
        if port in _ports_given_out:
            continue
        with socket.socket() as probe, suppress(OSError):
            fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            probe.bind(("127.0.0.1", port))
            _ports_given_out.add(port)
            return port


@cache
def _reservations() -> int:
    return os.open(_RESERVATIONS, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def end_in_order_on_signals() -> None:
    """Let SIGTERM and SIGHUP be what Ctrl-C is, so that every context is closed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


async def _wait_ready(name: str, process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    """Ask until the answer is 200; a certificate of its own making is not looked at."""
    clock = asyncio.get_running_loop().time
    end = clock() + READY_WITHIN_SECONDS
    timeout = aiohttp.ClientTimeout(total=2)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False), timeout=timeout) as session:
        while process.returncode is None and clock() < end:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(url) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(_POLL_SECONDS)
    raise NotReady(f"{name} is not ready (exit code {process.returncode}):\n{_tail(log, 20)}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_WITHIN_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _tail(log: Path, lines: int) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
