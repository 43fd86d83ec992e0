"""How good the decisions are, worked out between calls, so that no verb is slower for it: each extender tells of its own.

What was bound waits here until it is compared with the best that its machine could give; then it is remembered for a while. How
long pods wait, and for how many pods of each size there is room, is counted anew in every round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from extender.binding.outcome import BindTarget, Bound, Chosen
from extender.cluster.candidates.holds import Ranked
from extender.cluster.state import ClusterState
from extender.core.feature import Core, Feature
from extender.features.quality.series import (
    BANDWIDTH_RATIO,
    LOSS,
    QUALITY,
    ROOM,
    WAITING_SECONDS,
    room_figures,
    waiting_figures,
)
from extender.inspect.decisions import Alternative, Decision
from extender.inspect.fragmentation import RoomCounter
from extender.inspect.history import History
from extender.kit.clock import Clock
from extender.kit.rounds import Round
from extender.kit.turns import with_pauses
from extender.telemetry.metrics import Metrics
from topology.effort import SLICE_STEPS
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import UNDECIDED, Placement
from topology.request.gpu_request import GpuRequest

ROUND_SECONDS: Final = 15.0
"""Between two rounds."""
LIMIT: Final = 10_000
"""Placements that wait to be judged; of more the oldest are not."""
_END: Final = object()


@dataclass(frozen=True, slots=True)
class _Bound:
    at: float
    """Seconds since 1970."""
    target: BindTarget
    chosen: Chosen


class Quality(Feature):
    """The rounds of one extender."""

    name = "quality"
    declarations = QUALITY

    def __init__(
        self, state: ClusterState, metrics: Metrics, clock: Clock, history: History, *, pods_to_come: float
    ) -> None:
        """Weigh what the pods to come lose by `pods_to_come`, which is λ, as the score does."""
        self._state = state
        self._metrics = metrics
        self._clock = clock
        self._pods_to_come = pods_to_come
        self._rooms = RoomCounter()
        self._bound: deque[_Bound] = deque(maxlen=LIMIT)
        self._history = history

    @classmethod
    def of(cls, core: Core) -> Self:
        """Return the feature; it has no switch."""
        pods_to_come = core.config.scheduling.weights.pods_to_come
        return cls(core.state, core.metrics, core.clock, core.history, pods_to_come=pods_to_come)

    def rounds(self) -> Iterable[Round]:
        """Return the one that judges; the first comes late, as there is enough to do at the start."""
        judge = Round(
            name=self.name,
            work=lambda: with_pauses(self._in_slices(self.round())),
            every_seconds=ROUND_SECONDS,
            first_after_seconds=ROUND_SECONDS,
        )
        return (judge,)

    def after_bind(self, target: BindTarget, bound: Bound) -> None:
        """Remember what a pod was bound with."""
        if bound.chosen:
            self.judge_later(target, bound.chosen)

    def judge_later(self, target: BindTarget, chosen: Chosen) -> None:
        """Judge a choice in the next round."""
        self._bound.append(_Bound(self._clock().wall, target, chosen))

    def _in_slices(self, steps: Generator[None]) -> Generator[None]:
        """Take the steps so that none of them searches for longer than a slice."""
        while self._goes_on(steps):
            yield

    def _goes_on(self, steps: Generator[None]) -> bool:
        with self._state.effort.bounded(SLICE_STEPS):
            return next(steps, _END) is None

    def round(self) -> Generator[None]:
        """Judge what was bound, and count anew what is; in small steps."""
        for bound in [self._bound.popleft() for _ in range(len(self._bound))]:
            self._judge(bound)
            yield
        waits = self._state.memory.refusals.waits(self._clock().monotonic)
        self._metrics.show(WAITING_SECONDS, waiting_figures(waits))
        yield
        fits = yield from self._rooms.count(self._state)
        self._metrics.show(ROOM, room_figures(fits))
        self._history.room.add(self._clock(), fits)

    def _judge(self, bound: _Bound) -> None:
        chosen, placement, best = bound.chosen, bound.chosen.placement, None
        if placement.bandwidth is not None:
            best = best_gb_per_s(chosen.topology_class, len(placement.gpus))
            if best is None:
                self._bound.append(bound)  # the search goes on: it is judged in a later round
                return
            ratio = placement.bandwidth.point / best
            self._metrics.observe(BANDWIDTH_RATIO, ratio, chosen.request.communication)
        loss = self._loss(placement)
        if loss is not None:
            self._metrics.observe(LOSS, loss)
        self._history.decisions.add(
            Decision(
                number=self._history.decisions.next_number,
                at=datetime.fromtimestamp(int(bound.at), UTC),
                namespace=bound.target.namespace,
                name=bound.target.name,
                uid=bound.target.uid,
                node=bound.target.node,
                indexes=tuple(chosen.topology_class.node.indexes[position] for position in placement.gpus),
                gb_per_s=_gb_per_s(placement),
                best_gb_per_s=best,
                loss=loss,
                alternative=self._alternative(chosen.alternative),
            )
        )

    def _alternative(self, ranked: Ranked | None) -> Alternative | None:
        if ranked is None:
            return None
        return Alternative(ranked.node, _gb_per_s(ranked.placement), self._loss(ranked.placement))

    def _loss(self, placement: Placement) -> float | None:
        return None if placement.value_lost is None else self._pods_to_come * placement.value_lost


def _gb_per_s(placement: Placement) -> float | None:
    return placement.bandwidth.point if placement.bandwidth else None


def best_gb_per_s(topology_class: TopologyClass, gpus: int) -> float | None:
    """Return the predicted bandwidth of the best set of several GPUs if all were free; a look-up, once it has been asked for.

    `None` as long as the search for it goes on.
    """
    every = (1 << len(topology_class.node)) - 1
    best = decide(Situation(topology_class, every), GpuRequest(gpus))
    if best is UNDECIDED:
        return None
    assert isinstance(best, Placement), "so many GPUs were just given away"
    assert best.bandwidth, "there are several"
    return best.bandwidth.point
