"""Pages of what there may be tens of thousands of, put together a little at a time.

The event loop that makes them also answers kube-scheduler, so no step may take long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import chain
from typing import Any, Final, TypeVar

from extender.kit.turns import OTHERS_FIRST, Gap

STEP: Final = 500
"""Items between two chances for everybody else; about a millisecond."""
Item = TypeVar("Item")


async def first(
    count: int,
    items: Iterable[Item],
    key: Callable[[Item], Any],
    where: Callable[[Item], bool],
    gap: Gap = OTHERS_FIRST,
) -> list[Item]:
    """Return the least `count` of the items that `where` admits, in order of `key`, as all of them are at the call."""
    everything, first_items = list(items), list[Item]()
    for start in range(0, len(everything), STEP):
        admitted = filter(where, everything[start : start + STEP])
        first_items = nsmallest(count, chain(first_items, admitted), key=key)
        await gap()
    return first_items
