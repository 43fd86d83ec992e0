"""A program whose event loop is watched from inside: how late a timer of 10 ms comes.

`python -m benchmarks.processes.ticking FILE MODULE ARGUMENTS…` runs a module as `python -m` would; without a module nothing but
the timer runs, which shows how late the machine itself is. FILE gets a line for each tick. It says when the tick was due,
as all processes of the machine see the time, and how many milliseconds it was late. The third figure is how many
milliseconds the loop's thread has computed since the tick before.
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


class _Ticks:
    """The timer of one event loop."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._cpu_seconds = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        # Each tick is due a while after the last one came: after a long stall one tick is late, and not all that it delayed.
        loop.call_later(TICK_SECONDS, self._come, loop, time.monotonic() + TICK_SECONDS)

    def _come(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        late, computed = max(0.0, time.monotonic() - due), time.thread_time()
        self._file.write(f"{due:.6f} {1000 * late:.3f} {1000 * (computed - self._cpu_seconds):.3f}\n")
        self._cpu_seconds = computed
        self.start(loop)


def lateness_ms(file: Path, begun: float, ended: float) -> list[float]:
    """Return how late the ticks of a file were that were due between two moments of the monotonic clock."""
    ticks = (tuple(map(float, line.split())) for line in file.read_text().splitlines())
    return [late_ms for due, late_ms, _ in ticks if begun <= due <= ended]


def held_up_ms(line: str) -> float:
    """Return for how long the loop let nobody have a turn before a tick, in CPU time: a busy machine makes it no longer.

    The tick was late for that long, and not for want of a processor: the loop's thread computed. It may be `TICK_SECONDS` too
    much, because that thread may also have computed before the tick was due.
    """
    _, late_ms, cpu_ms = map(float, line.split())
    return min(late_ms, cpu_ms)


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
    with Path(file).open("w", buffering=1) as lines:  # who has to be killed has told all, and others read along
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
