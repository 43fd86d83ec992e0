"""The names of a call: thousands come, and few of them are ever asked about.

So they stay the text that kube-scheduler has written. The best nodes are looked for in it, and all names are read only where all
of them are wanted. Strings for 5,000 names, and a set of these, take longer than the rest of a filter call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Self

import msgspec

LOOKED_UP: Final = 32
"""So many are looked up one by one: the nominated node alone, or filter's candidates."""
WHOLE_SEARCHES: Final = 4
"""Through all of a text, for names that stand far from where they stood last; then reading it once is less."""
_NEAR, _WIDE = 1_000, 20_000
"""Bytes before and behind the last place of a name. kube-scheduler looks at nodes in chunks, some of them side by side, so that a
name moves by some chunks from call to call."""
_PLACES: Final = 10_000
"""Names whose places are remembered."""
_PLAIN: Final = b"abcdefghijklmnopqrstuvwxyz0123456789-."

_stood_at: dict[str, int] = {}
"""Where a name was found last: only where to look first, so it decides nothing."""


class Written(Collection[str]):
    """Names as kube-scheduler writes them: `["n1","n2"]`."""

    def __init__(self, text: bytes, count: int) -> None:
        self._text = text
        self._count = count
        self._searches_left = WHOLE_SEARCHES
        self._listed: list[str] | None = None
        self._all: frozenset[str] | None = None

    @classmethod
    def read(cls, text: bytes) -> Self | None:
        """Return the names in a JSON value, or `None` where it is anything but a list of plain names, without a space."""
        marks = text.translate(None, _PLAIN)
        count = len(marks) // 3
        is_plain = count > 0 and marks == b'["' + b'","' * (count - 1) + b'"]'
        return cls(text, count) if is_plain else None

    def unread(self) -> Self:
        """Return the same, of which nothing has been read yet: that takes a fifth of the memory."""
        return type(self)(self._text, self._count)

    def __len__(self) -> int:
        """Return how many there are; a name may come twice."""
        return self._count

    def __iter__(self) -> Iterator[str]:
        """Read all of them, in their order."""
        if self._listed is None:
            self._listed = _decode(self._text)
        return iter(self._listed)

    def __contains__(self, name: object) -> bool:
        """Whether it is one of them."""
        if self._all is None:
            if self._searches_left and isinstance(name, str):
                return self._finds(name)
            self._all = frozenset(self)
        return name in self._all

    def _finds(self, name: str) -> bool:
        plain = name.encode()
        if plain.translate(None, _PLAIN):
            return False
        text, written, near = self._text, b'"%b"' % plain, _stood_at.get(name, 0)
        at = text.find(written, max(0, near - _NEAR), near + _NEAR)
        if at < 0:
            at = text.find(written, max(0, near - _WIDE), near + _WIDE)
        if at < 0:
            self._searches_left -= 1
            at = text.find(written)
        if at < 0:
            return False
        if len(_stood_at) >= _PLACES:
            _stood_at.clear()
        _stood_at[name] = at
        return True


class Names:
    """The nodes of one call that count, of which any can be asked about with `in`."""

    def __init__(self, listed: Collection[str], without: frozenset[str] = frozenset()) -> None:
        """Take the names of a call, and those of them that do not count."""
        self._listed = dict.fromkeys(listed) if isinstance(listed, list) else listed
        self._without = without
        self._all: frozenset[str] | None = None

    def without(self, some: Collection[str]) -> Names:
        """Return the same but for some of them."""
        return Names(self._listed, self._without.union(some))

    @property
    def all(self) -> frozenset[str]:
        """All of them."""
        if self._all is None:
            self._all = frozenset(self._listed) - self._without
        return self._all

    @property
    def are_few(self) -> bool:
        """Whether to look up each of them is less than to look through the nodes for them."""
        return len(self._listed) <= LOOKED_UP

    def __contains__(self, name: object) -> bool:
        """Whether it is one of them."""
        return name not in self._without and name in self._listed


_decode = msgspec.json.Decoder(list[str]).decode
