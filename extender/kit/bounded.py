"""A dictionary of bounded length: the oldest entry makes room for a new one.

Where tenants choose the keys, `FairTable` is the right one: there a tenant makes room for its own entries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Bounded(Generic[Key, Value]):
    """Entries by key, the oldest first."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` entries."""
        self._limit = limit
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key."""
        return self._entries.get(key)

    def put(self, key: Key, value: Value) -> tuple[Key, Value] | None:
        """Set a value, which is the newest now; returns the entry that had to make room."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        return self._entries.popitem(last=False) if len(self._entries) > self._limit else None

    def replace(self, key: Key, value: Value) -> None:
        """Set the value of a key that is there, which stays as old as it is; raises `KeyError` for another one."""
        self._entries[key]
        self._entries[key] = value

    def pop(self, key: Key) -> Value | None:
        """Remove a key and return its value."""
        return self._entries.pop(key, None)

    def items(self) -> Iterator[tuple[Key, Value]]:
        """Iterate over the entries, the oldest first."""
        return iter(self._entries.items())

    def values(self) -> Iterator[Value]:
        """Iterate over the values, the oldest first."""
        return iter(self._entries.values())

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
