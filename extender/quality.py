"""How good the decisions are, worked out between calls, so that no verb is slower for it: each extender tells of its own.

What was bound waits here until it is compared with the best that its machine could give. How long pods wait, and for how many
pods of each size there is room, is counted anew in every round.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import Final, NoReturn

import structlog

from extender.binding.outcome import Chosen
from extender.clock import Clock
from extender.cluster.state import ClusterState
from extender.inspect.fragmentation import RoomCounter
from extender.metrics import Metrics
from topology.effort import SLICE_STEPS
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import UNDECIDED, Placement
from topology.request.gpu_request import GpuRequest

ROUND_SECONDS: Final = 15.0
"""Between two rounds."""
WORK_SECONDS: Final = 0.002
PAUSE_SECONDS: Final = 0.004
"""A third of the time at most goes into a round, as into searches."""
LIMIT: Final = 10_000
"""Placements that wait to be judged; of more the oldest are not."""
_END: Final = object()

log = structlog.get_logger(__name__)


class Quality:
    """The rounds of one extender."""

    def __init__(self, state: ClusterState, metrics: Metrics, clock: Clock, *, pods_to_come: float) -> None:
        """Weigh what the pods to come lose by `pods_to_come`, which is λ, as the score does."""
        self._state = state
        self._metrics = metrics
        self._clock = clock
        self._pods_to_come = pods_to_come
        self._rooms = RoomCounter()
        self._bound: deque[Chosen] = deque(maxlen=LIMIT)

    def bound(self, chosen: Chosen) -> None:
        """Take note of what a pod was bound with; it is judged in the next round."""
        self._bound.append(chosen)

    async def run(self) -> NoReturn:
        """Make one round after the other, until cancelled; the first one not at once, as there is enough to do at the start."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                await self._round_beside_calls()
            except Exception:  # whoever only watches must not stop those who decide
                log.exception("the quality of decisions was not told")

    async def _round_beside_calls(self) -> None:
        steps, begun = self.round(), self._clock().monotonic
        while self._goes_on(steps):
            if self._clock().monotonic - begun > WORK_SECONDS:
                await asyncio.sleep(PAUSE_SECONDS)
                begun = self._clock().monotonic

    def _goes_on(self, steps: Generator[None]) -> bool:
        with self._state.effort.bounded(SLICE_STEPS):
            return next(steps, _END) is None

    def round(self) -> Generator[None]:
        """Judge what was bound, and count anew what is; in small steps."""
        for chosen in [self._bound.popleft() for _ in range(len(self._bound))]:
            self._judge(chosen)
            yield
        self._metrics.waiting(self._state.refusals.waits(self._clock().monotonic))
        yield
        self._metrics.room((yield from self._rooms.count(self._state)))

    def _judge(self, chosen: Chosen) -> None:
        placement = chosen.placement
        if placement.bandwidth is not None:
            best = best_gb_per_s(chosen.topology_class, len(placement.gpus))
            if best is None:
                self._bound.append(chosen)  # the search goes on: it is judged in a later round
                return
            self._metrics.placed(chosen.request.communication, placement.bandwidth.point / best)
        if placement.value_lost is not None:
            self._metrics.lost(self._pods_to_come * placement.value_lost)


def best_gb_per_s(topology_class: TopologyClass, gpus: int) -> float | None:
    """Return the predicted bandwidth of the best set of several GPUs if all were free; a look-up, once it has been asked for.

    `None` as long as the search for it goes on.
    """
    every = (1 << len(topology_class.node)) - 1
    found = decide(Situation(topology_class, every), GpuRequest(gpus))
    if found is UNDECIDED:
        return None
    assert isinstance(found, Placement), "so many GPUs were just given away"
    assert found.bandwidth, "there are several"
    return found.bandwidth.point
