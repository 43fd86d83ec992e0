"""Work on several processes: Ctrl-C ends them without a word of theirs, and one that dies is an error instead of a wait."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class ProcessLost(Exception):
    """A process ended before its work did; the text says what to do."""


@contextmanager
def mapped(work: Callable[[T], R], items: Sequence[T], processes: int) -> Iterator[Iterator[R]]:
    """Give what `work` makes of each item, in their order, as it comes; whoever leaves early ends the processes.

    Raises `ProcessLost`, and what `work` raises.
    """
    others = active_children()
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        try:
            with _interrupts_held_back():
                # Not `map`: it calls off what waits, and of what was called off a pool without processes trips over.
                pending = [pool.submit(work, item) for item in items]
            yield (future.result() for future in pending)
        except BaseException as failed:
            for process in active_children():
                if process not in others:
                    process.terminate()  # else leaving the pool would wait for what it is at
            if isinstance(failed, BrokenProcessPool):
                raise ProcessLost("a process was killed, for want of memory perhaps: try fewer --jobs") from failed
            raise


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Put Ctrl-C off while processes start: they inherit that, for good, and so leave it to us."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
