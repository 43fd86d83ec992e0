"""What an extender works out between calls."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from extender.cluster.candidates.values import Values
from extender.core.derivation import keep_appraised, keep_derived
from tests.extender.builders import cluster, node
from topology.placement.topology_classes import TopologyClasses
from topology.value.demand import PRIOR_PODS
from topology.value.fragmentation import PodKind
from topology.value.score import Weights


def test_pods_that_come_all_at_once_are_learnt_from_before_the_next_look() -> None:
    """A second is less than a look takes to come."""

    async def run() -> tuple[tuple[PodKind, float], ...]:
        learnt = asyncio.Event()
        values = Values(TopologyClasses(), Weights(), learnt.set)
        kept = asyncio.create_task(keep_appraised(values))
        await asyncio.sleep(0)
        for number in range(int(PRIOR_PODS) * 2):
            values.meet(f"uid-{number}", PodKind(4), running=False)
        await asyncio.wait_for(learnt.wait(), 1.0)
        kept.cancel()
        with suppress(asyncio.CancelledError):
            await kept
        return values.typical

    assert asyncio.run(run()) == ((PodKind(4), 1.0),)


def test_who_keeps_values_ends_though_news_comes_as_it_is_told_to() -> None:
    """Else the extender waits for it for ever."""

    async def run() -> bool:
        values = Values(TopologyClasses(), Weights(), lambda: None)
        kept = asyncio.create_task(keep_appraised(values))
        await asyncio.sleep(0.01)
        values.wake()
        kept.cancel()
        await asyncio.wait([kept], timeout=60)
        return kept.cancelled()

    assert asyncio.run(run())


def test_views_are_derived_before_anybody_asks() -> None:
    """All that changed, each time; nothing is left for the next call to do."""

    async def run() -> list[int]:
        state, derived = cluster(node("n1"), node("n2")), asyncio.Event()
        kept = asyncio.create_task(keep_derived(state, derived.set))
        left = []
        for version in (2, 3):
            await asyncio.wait_for(derived.wait(), 1.0)
            left.append(len(list(state.refreshing())))
            derived.clear()
            state.nodes.changed(node("n1", version=version))
        await asyncio.wait_for(derived.wait(), 1.0)
        kept.cancel()
        return [*left, len(list(state.refreshing()))]

    assert asyncio.run(run()) == [0, 0, 0]
