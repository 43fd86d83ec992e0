"""A program whose event loop is watched from inside: how late a timer of 10 ms comes.

`python -m benchmarks.processes.ticking FILE MODULE ARGUMENTS…` runs a module as `python -m` would; without a module nothing but
the timer runs, which shows how late the machine itself is. At the end FILE has a line for each tick: when it was due, as
all processes of the machine see the time, and how many milliseconds it was late.
"""

from __future__ import annotations

import asyncio
import runpy
import sys
from array import array
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvloop

TICK_SECONDS = 0.01


class _Ticks:
    """All ticks of one event loop so far."""

    def __init__(self) -> None:
        self.due, self.late_ms = array("d"), array("d")

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        # Each tick is due a while after the last one came: after a long stall one tick is late, and not all that it delayed.
        loop.call_later(TICK_SECONDS, self._come, loop, loop.time() + TICK_SECONDS)

    def _come(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.due.append(due)
        self.late_ms.append(1000 * (loop.time() - due))
        self.start(loop)

    def lines(self) -> Iterator[str]:
        for due, late_ms in zip(self.due, self.late_ms, strict=True):
            yield f"{due:.6f} {late_ms:.3f}\n"


def lateness_ms(file: Path, begun: float, ended: float) -> list[float]:
    """Return how late the ticks of a file were that were due between two moments of the loop's clock."""
    ticks = (tuple(map(float, line.split())) for line in file.read_text().splitlines())
    return [late_ms for due, late_ms in ticks if begun <= due <= ended]


@asynccontextmanager
async def running_bare(file: Path) -> AsyncIterator[None]:
    """Run the timer alone; its file is there when the context is left."""
    command = [sys.executable, "-m", "benchmarks.processes.ticking", str(file)]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        await process.communicate()


async def _until_told() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Run the module with its loop watched, then write the file."""
    file, *rest = sys.argv[1:]
    ticks, make = _Ticks(), uvloop.new_event_loop

    def ticking() -> uvloop.Loop:
        loop = make()
        ticks.start(loop)
        return loop

    uvloop.new_event_loop = ticking
    try:
        if rest:
            sys.argv = rest
            with suppress(SystemExit):
                runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            with asyncio.Runner(loop_factory=ticking) as runner:
                runner.run(_until_told())
    finally:
        with Path(file).open("w") as lines:
            lines.writelines(ticks.lines())


if __name__ == "__main__":
    main()
