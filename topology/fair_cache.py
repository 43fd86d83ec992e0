"""A cache of bounded length whose places owners, such as namespaces, share fairly; several of them may use one entry.

A key too many pushes out one of the owner that has most. So an owner that never runs out of new keys pushes out its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Entry(Generic[Key, Value]):
    """Is looked up by identity: the hash of a key may take long."""

    __slots__ = ("key", "owner", "value")

    def __init__(self, key: Key, value: Value, owner: str) -> None:
        self.key = key
        self.value = value
        self.owner = owner


class FairCache(Generic[Key, Value]):
    """Values by key. A key of several owners belongs to the one that has fewest."""

    def __init__(self, limit: int, weight: Callable[[Value], float] = lambda _: 0.0) -> None:
        """Keep `limit` keys; of one owner's, the least weight goes first, then the one that was not used for longest."""
        self._limit = limit
        self._weight = weight
        self._entries: dict[Key, _Entry[Key, Value]] = {}
        self._of: OrderedDict[str, OrderedDict[_Entry[Key, Value], None]] = OrderedDict()
        """By owner; owners and entries in the order of their last use."""

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, if there is one; that is no use of it."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def use(self, key: Key, owner: str) -> Value | None:
        """Return the value that an owner asks for, if there is one."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._use(entry, owner)
        return entry.value

    def put(self, key: Key, value: Value, owner: str) -> tuple[Key, Value] | None:
        """Keep a value; returns the key that had to leave for it, with its value."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.value = value
            self._use(entry, owner)
            return None
        entry = self._entries[key] = _Entry(key, value, owner)
        self._of.setdefault(owner, OrderedDict())[entry] = None
        self._of.move_to_end(owner)
        return self._push_out(entry) if len(self._entries) > self._limit else None

    def replace(self, key: Key, value: Value) -> None:
        """Replace a value; that is no use of its key."""
        self._entries[key].value = value

    def drop(self, key: Key) -> Value:
        """Take a key out, and return its value."""
        entry = self._entries.pop(key)
        self._disown(entry)
        return entry.value

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._of.clear()

    def owner_of(self, key: Key) -> str:
        """Return whose place a key takes."""
        return self._entries[key].owner

    def items(self) -> Iterator[tuple[Key, Value]]:
        """Yield all, in the order in which they came."""
        return ((key, entry.value) for key, entry in self._entries.items())

    def values(self) -> Iterator[Value]:
        """Yield the values alone."""
        return (entry.value for entry in self._entries.values())

    def is_full_for(self, owner: str) -> bool:
        """Whether a new key of the owner would push out one of its own."""
        return len(self._entries) >= self._limit and self._largest(owner, besides=0) == owner

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def _use(self, entry: _Entry[Key, Value], owner: str) -> None:
        if entry.owner != owner and len(self._of.get(owner, ())) + 1 < len(self._of[entry.owner]):
            self._disown(entry)
            entry.owner = owner
            self._of.setdefault(owner, OrderedDict())[entry] = None
        self._of[entry.owner].move_to_end(entry)
        self._of.move_to_end(entry.owner)

    def _disown(self, entry: _Entry[Key, Value]) -> None:
        del self._of[entry.owner][entry]
        if not self._of[entry.owner]:
            del self._of[entry.owner]

    def _push_out(self, new: _Entry[Key, Value]) -> tuple[Key, Value]:
        """Let a key leave for a new one, which does not count yet; linear in the owners, and in the keys of one of them."""
        largest = self._of[self._largest(new.owner, besides=1)]
        gone = min((entry for entry in largest if entry is not new), key=lambda entry: self._weight(entry.value))
        return gone.key, self.drop(gone.key)

    def _largest(self, comer: str, besides: int) -> str:
        """Return the owner that has most, of equals the one that comes; so many of its keys are new and do not count."""

        def size(owner: str) -> tuple[int, bool]:
            is_comer = owner == comer
            return len(self._of[owner]) - is_comer * besides, is_comer

        return max(self._of, key=size)
