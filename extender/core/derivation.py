"""What an extender works out between calls, so that they find less to do.

These are the views of nodes that changed, what free GPUs are worth, and searches that were too large for a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from extender.cluster.candidates.values import Values
from extender.cluster.state import ClusterState
from extender.kit.turns import in_short_turns, with_pauses
from topology.effort import Effort

APPRAISE_SECONDS = 10.0
"""Between looks whether there are machines of a new kind; news of pods is not waited for."""
SLICE_PAUSE_SECONDS = 0.004
"""Between two slices of searches, twice what a slice takes."""


async def keep_derived(state: ClusterState, derived: Callable[[], object]) -> NoReturn:
    """Keep the views in step with the events, a few at a time; `derived` is called whenever all are.

    A call derives for itself what is still to be derived then: in a burst that could be thousands.
    """
    news = asyncio.Event()
    state.call_when_outdated(news.set)
    while True:
        news.clear()
        await in_short_turns(state.refreshing())
        derived()
        await news.wait()


async def keep_appraised(values: Values) -> NoReturn:
    """Keep the values of free GPUs in step with machines and demand. No call waits for them: it takes what there is.

    A mix of pods that is news is taken in at once: hundreds may come while one look follows the other.
    """
    news = asyncio.Event()
    values.wake = news.set
    while True:
        news.clear()
        await with_pauses(values.appraise())
        with suppress(TimeoutError):
            async with asyncio.timeout(APPRAISE_SECONDS):
                await news.wait()


async def go_on_searching(effort: Effort) -> NoReturn:
    """Go on with searches that were too large for the calls that asked, for a third of the time at most."""
    begun = asyncio.Event()
    begun.set()
    effort.wake = begun.set
    while True:
        await begun.wait()
        begun.clear()
        for _ in effort.work():
            await asyncio.sleep(SLICE_PAUSE_SECONDS)
