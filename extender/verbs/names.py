"""The names of a call: thousands come, and few of them are ever asked about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

FEW: Final = 500
"""A set of so many is made at once."""
LOOKED_UP: Final = 32
"""So many are looked up one by one: the nominated node alone, or filter's candidates."""


class Names:
    """The nodes of one call, of which any can be asked about with `in`.

    A set of 5,000 names takes longer to make than the rest of a filter call. One pass through the list, for some names at a time,
    takes a third of that.
    """

    def __init__(self, listed: Sequence[str] | frozenset[str]) -> None:
        self._listed = listed
        self._all = listed if isinstance(listed, frozenset) else frozenset(listed) if len(listed) <= FEW else None
        self._looked_up: frozenset[str] = frozenset()
        self._found: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """All of them."""
        if self._all is None:
            self._all = frozenset(self._listed)
        return self._all

    @property
    def are_few(self) -> bool:
        """Whether to look up each of them is less than to look through the nodes for them."""
        return len(self._listed) <= LOOKED_UP

    def expect(self, some: Iterable[str]) -> None:
        """Get ready to be asked about these, in one pass through the names; it pays the first time only."""
        if self._all is None and not self._looked_up:
            self._looked_up = frozenset(some)
            self._found = self._looked_up.intersection(self._listed)

    def __contains__(self, name: object) -> bool:
        """Whether it is one of them."""
        if self._all is None and name in self._looked_up:
            return name in self._found
        return name in self.all
