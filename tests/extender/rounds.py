"""Runs the rounds of a feature as an extender does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from extender.core.feature import Feature
from extender.kit.rounds import Rounds


async def listed() -> None:
    """Return at once: the cluster has been listed."""


@asynccontextmanager
async def at_work(feature: Feature, failed: Callable[[str], object] = lambda _: None) -> AsyncIterator[Rounds]:
    """Run all rounds of a feature while the context is open."""
    rounds = Rounds(failed)
    rounds.start(feature.rounds(), listed)
    try:
        yield rounds
    finally:
        await rounds.stop()
