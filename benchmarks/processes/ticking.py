"""A program whose event loop is watched from inside: how late a timer of 10 ms comes.

`python -m benchmarks.processes.ticking FILE MODULE ARGUMENTS…` runs a module as `python -m` would; without a module nothing but
the timer runs, which shows how late the machine itself is. FILE gets a line for each tick: when it was due, as all
processes of the machine see the time, and how many milliseconds it was late.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TextIO

import uvloop

TICK_SECONDS = 0.01
_TICKS_A_FLUSH = 100
"""A program that has to be killed in the end has told all but its last second."""


class _Ticks:
    """The timer of one event loop."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._come_so_far = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        # Each tick is due a while after the last one came: after a long stall one tick is late, and not all that it delayed.
        loop.call_later(TICK_SECONDS, self._come, loop, time.monotonic() + TICK_SECONDS)

    def _come(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._file.write(f"{due:.6f} {1000 * max(0.0, time.monotonic() - due):.3f}\n")
        if self._come_so_far % _TICKS_A_FLUSH == 0:
            self._file.flush()
        self._come_so_far += 1
        self.start(loop)


def lateness_ms(file: Path, begun: float, ended: float) -> list[float]:
    """Return how late the ticks of a file were that were due between two moments of the monotonic clock."""
    ticks = (tuple(map(float, line.split())) for line in file.read_text().splitlines())
    return [late_ms for due, late_ms in ticks if begun <= due <= ended]


@asynccontextmanager
async def running_bare(file: Path) -> AsyncIterator[None]:
    """Run the timer alone, and enter when it has begun; its file is whole when the context is left."""
    command = [sys.executable, "-m", "benchmarks.processes.ticking", str(file)]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, start_new_session=True)
    try:
        while not _has_begun(file):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(TICK_SECONDS)
        yield
    finally:
        await process.communicate(b"")


def _has_begun(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


async def _until_told() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Run the module with its loop watched."""
    file, *rest = sys.argv[1:]
    with Path(file).open("w") as lines:
        ticks, make = _Ticks(lines), uvloop.new_event_loop

        def ticking() -> uvloop.Loop:
            loop = make()
            ticks.start(loop)
            return loop

        if rest:
            uvloop.new_event_loop = ticking
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            with asyncio.Runner(loop_factory=ticking) as runner:
                runner.run(_until_told())


if __name__ == "__main__":
    main()
