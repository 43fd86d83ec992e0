"""How long a wait may take where other work holds the cores, and what a wait that failed says."""

from __future__ import annotations

import inspect
import reprlib
import time
from collections.abc import Callable
from functools import lru_cache

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 2000
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = 50
_SAMPLE_SECONDS = 0.01
_FRESH_SECONDS = 5.0
_MOST_TIMES = 8.0


def patience(seconds: float) -> float:
    """Return how long to wait, on this machine as it is now, for what takes so long at most on a core of its own."""
    return seconds * _slowness(int(time.monotonic() / _FRESH_SECONDS))


@lru_cache(1)
def _slowness(_: int) -> float:
    """Return how many times as long as it computes a thread takes; 1 where nothing else runs."""
    return slowness(time.perf_counter, time.thread_time)


def slowness(clock: Callable[[], float], cpu: Callable[[], float]) -> float:
    """Compute for a moment, and return the time by the clock divided by that on a core: at least 1, at most 8."""
    began, begun = clock(), cpu()
    while (computed := cpu() - begun) < _SAMPLE_SECONDS:
        pass
    return max(1.0, min(_MOST_TIMES, (clock() - began) / computed))


def account(condition: Callable[[], object], answer: object, seconds: float) -> str:
    """Describe a wait that failed: the condition's source, its last answer, and the variables that it reads."""
    try:
        source = " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        source = repr(condition)
    try:
        variables = inspect.getclosurevars(condition).nonlocals
    except TypeError:
        variables = {"self": getattr(condition, "__self__", None)}
    shown = "".join(f"\n  {name} = {_SHORT.repr(value)}" for name, value in variables.items())
    return f"after {seconds:g} s the answer is still {_SHORT.repr(answer)} for: {source}{shown}"
