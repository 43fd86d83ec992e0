"""When Python looks for garbage: each look stops everybody for as long as there are objects to look at."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Final

_WHILE_STARTING: Final = 1_000_000
"""New objects between two looks. Imports and the first lists make next to no garbage, and else looks are a sixth of an import."""
_WHILE_SERVING: Final = (700, 3, 400)
"""New objects between two collections of the youngest, such collections between two of the middle, and these between two
of everything not frozen. They find next to nothing: what events bring is no part of a cycle. So the middle ones are a
third as long as usual, and the long ones are seldom."""
_OLDEST: Final = 2
_LONG_SECONDS: Final = 0.05


def put_off() -> None:
    """Look as good as never, until `resume`."""
    gc.set_threshold(_WHILE_STARTING)


def resume() -> None:
    """Look as often as suits somebody who serves."""
    gc.set_threshold(*_WHILE_SERVING)


def freeze() -> None:
    """Look once through all there is, which takes seconds after long lists if it is done later, and never again."""
    gc.collect()
    gc.freeze()


class FreezeAfterLong:
    """A callback of `gc`: what survives a long look through everything is frozen, so that the next one is short.

    At 5,000 nodes such a look takes 0.1 to 0.3 s once events have replaced most of what `freeze` kept out of it. Cycles that
    become garbage later are kept: those of the connections that were open at that moment.
    """

    def __init__(self, long_seconds: float = _LONG_SECONDS) -> None:
        self._long_seconds = long_seconds
        self._began = 0.0

    def __call__(self, phase: str, about: Mapping[str, int]) -> None:
        """Note when a look begins, and freeze at its end."""
        if about["generation"] != _OLDEST:
            return
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        elif now - self._began >= self._long_seconds:
            gc.freeze()
