"""Pods that are bound are seen, whatever becomes of the watch that shows them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

from benchmarks.performance.burst import until_bound
from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.process import Process


class Watched:
    """Answers one watch after the other, each with so many events."""

    def __init__(self, *answers: list[tuple[str, Json]]) -> None:
        self._answers = iter(answers)

    async def watch(self, path: str, **query: str) -> AsyncGenerator[tuple[str, Json], None]:
        """Yield the events of the next answer, until it ends."""
        for event in next(self._answers):
            yield event


def bound(name: str) -> tuple[str, Json]:
    """Return the event of a pod."""
    return "ADDED", {"metadata": {"name": name}}


async def test_a_watch_that_is_cut_off_begins_again() -> None:
    """Nothing is bound for minutes before a large gang starts, and the server has forgotten what the watch saw last."""
    expired: tuple[str, Json] = "ERROR", {"kind": "Status", "metadata": {}, "code": 410}
    api = Watched([bound("a"), expired], [bound("a")], [bound("a"), bound("b")])
    times = await until_bound(cast("ApiClient", api), 2, cast("Process", None))
    assert sorted(times) == ["a", "b"]
