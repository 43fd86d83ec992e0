"""kube-scheduler waits for its next answer while many binds are under way."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from extender.kit import pace
from extender.kit.pace import BINDS, Pace


async def test_the_next_one_waits_for_a_bind_to_end_where_many_are_under_way() -> None:
    """As many as may be; one less keeps nobody waiting."""
    kept, waited = Pace(), list[str]()
    with ExitStack() as binds:
        for _ in range(BINDS - 1):
            binds.enter_context(kept.bind())
        await kept.room()
        with kept.bind():
            waiting = asyncio.create_task(kept.room())
            waiting.add_done_callback(lambda _: waited.append("room"))
            await asyncio.sleep(0.01)
            waited.append("bound")
        await waiting
        await asyncio.sleep(0)
    assert waited == ["bound", "room"]


async def test_nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other pods stand behind this one, and slow binds may all be to one node."""
    monkeypatch.setattr(pace, "PATIENCE_SECONDS", 0.01)
    kept = Pace()
    with ExitStack() as binds:
        for _ in range(BINDS):
            binds.enter_context(kept.bind())
        await asyncio.wait_for(kept.room(), 10.0)
