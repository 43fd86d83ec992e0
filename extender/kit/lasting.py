"""For how long something has been so without a break, as of the last look."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class Lasting(Generic[Key]):
    """Remembers since when each of some things has been so, in monotonic seconds; as many as there were at the last look."""

    _since: dict[Key, float] = field(default_factory=dict)

    def seconds(self, present: Iterable[Key], now: float) -> dict[Key, float]:
        """Return for how long each of the things that are so `now` has been so, in their order; forget all others.

        >>> lasting = Lasting[str]()
        >>> lasting.seconds(["a"], 10.0), lasting.seconds(["b", "a"], 12.0), lasting.seconds([], 13.0)
        ({'a': 0.0}, {'b': 0.0, 'a': 2.0}, {})
        """
        self._since = {key: self._since.get(key, now) for key in present}
        return {key: now - since for key, since in self._since.items()}

    def forget(self) -> None:
        """Forget everything: nobody has looked in between."""
        self._since.clear()
