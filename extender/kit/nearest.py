"""Which name somebody may have meant who mistyped one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

MOST_NAMES: Final = 5000
"""That are compared: each costs some 20 microseconds."""
CUTOFF: Final = 0.8
"""How alike two names are, from 0 to 1: one wrong letter of five."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence that names the nearest of some names, empty if none is near.

    >>> did_you_mean("dgx-3", ["l40s", "dgx-2"]), did_you_mean("dgx-3", ["l40s"])
    ('; did you mean dgx-2?', '')
    """
    nearest = get_close_matches(name, islice(names, MOST_NAMES), 1, CUTOFF)
    return f"; did you mean {nearest[0]}?" if nearest else ""
