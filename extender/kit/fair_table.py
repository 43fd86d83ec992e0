"""A bounded table that namespaces share fairly: one tenant can use up its own share of it, and no other tenant's.

When the table is full, the namespace with the most entries loses its oldest one. Entries that are taken out in turn come from one
namespace after the other, however many entries each of them has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class FairTable(Generic[Key, Value]):
    """Entries by key, each of one namespace."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` entries."""
        self._limit = limit
        self._entries: dict[Key, tuple[str, Value]] = {}
        """The oldest first."""
        self._keys: OrderedDict[str, dict[Key, None]] = OrderedDict()
        """By namespace, the oldest first; the namespace whose turn is next first."""
        self._of_length: dict[int, OrderedDict[str, None]] = {}
        """The namespaces by how many entries they have; there are at most √(2 · limit) different lengths."""

    def get(self, key: Key) -> Value | None:
        """Return the value of a key."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def put(self, key: Key, namespace: str, value: Value) -> Value | None:
        """Set a value, which is the newest now; returns the value that had to make room."""
        self.pop(key)
        keys = self._keys.setdefault(namespace, {})
        self._entries[key] = namespace, value
        keys[key] = None
        self._count(namespace, len(keys) - 1, len(keys))
        if len(self._entries) <= self._limit:
            return None
        largest = next(iter(self._of_length[max(self._of_length)]))
        return self.pop(next(iter(self._keys[largest])))

    def replace(self, key: Key, value: Value) -> None:
        """Set the value of a key that is there, which stays as old as it is."""
        namespace, _ = self._entries[key]
        self._entries[key] = namespace, value

    def pop(self, key: Key) -> Value | None:
        """Remove a key and return its value."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        namespace, value = entry
        keys = self._keys[namespace]
        del keys[key]
        self._count(namespace, len(keys) + 1, len(keys))
        if not keys:
            del self._keys[namespace]
        return value

    def pop_in_turn(self) -> Value:
        """Remove the oldest entry of the namespace whose turn it is; raises `KeyError` where there is none."""
        namespace = next(iter(self._keys), None)
        if namespace is None:
            raise KeyError("the table is empty")
        self._keys.move_to_end(namespace)
        value = self.pop(next(iter(self._keys[namespace])))
        assert value is not None
        return value

    def in_turn(self, most: int) -> list[Key]:
        """Return at most so many keys: the oldest of each namespace, then the second of each, and so on."""
        rounds = zip_longest(*self._keys.values())
        return [*islice((key for heads in rounds for key in heads if key is not None), most)]

    def to_back(self, key: Key) -> None:
        """Take note that a key has had its turn, and its namespace."""
        namespace, value = self._entries[key]
        self.put(key, namespace, value)
        self._keys.move_to_end(namespace)

    def values(self) -> Iterator[Value]:
        """Iterate over the values, the oldest first."""
        return (value for _, value in self._entries.values())

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys, the oldest first."""
        return iter(self._entries)

    def __reversed__(self) -> Iterator[Key]:
        return reversed(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _count(self, namespace: str, before: int, after: int) -> None:
        if before:
            del self._of_length[before][namespace]
            if not self._of_length[before]:
                del self._of_length[before]
        if after:
            self._of_length.setdefault(after, OrderedDict())[namespace] = None
