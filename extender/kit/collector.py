"""When Python looks for garbage: each look stops everybody for as long as there are objects to look at."""

from __future__ import annotations

import gc
from typing import Final

_WHILE_STARTING: Final = 1_000_000
"""New objects between two looks. Imports and the first lists make next to no garbage, and else looks are a sixth of an import."""
_WHILE_SERVING: Final = (700, 3, 400)
"""New objects between two collections of the youngest, such collections between two of the middle, and these between two
of everything not frozen. They find next to nothing: what events bring is no part of a cycle. So the middle ones are a
third as long as usual, and the long ones are seldom."""


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
