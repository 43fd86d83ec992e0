"""How fast counters rise from look to look."""

from __future__ import annotations

from collections.abc import Collection


class Rates:
    """Of the counters of all GPUs; looks that are closer together than `window_seconds` are one."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._marks: dict[tuple[str, str], tuple[float, int]] = {}

    def per_second(self, uuid: str, counter: str, count: int, now: float) -> float | None:
        """Take in a reading; return how fast the counter rose since the one before, or `None` where that cannot be told yet.

        A counter that fell counts anew: the driver was loaded, or the GPU reset.
        """
        began, before = self._marks.get((uuid, counter), (now, count))
        if (uuid, counter) in self._marks and began <= now < began + self._window_seconds and count >= before:
            return None
        self._marks[uuid, counter] = now, count
        return (count - before) / (now - began) if count >= before and now > began else None

    def forget_all_but(self, uuids: Collection[str]) -> None:
        """Forget the GPUs that are gone."""
        self._marks = {key: mark for key, mark in self._marks.items() if key[0] in uuids}
