"""What an extender works out between calls."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from extender.between_calls import keep_appraised
from extender.cluster.candidates.values import Values
from topology.placement.topology_class import TopologyClasses
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
