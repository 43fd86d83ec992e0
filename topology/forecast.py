"""The placement of a pod on a node where NVIDIA's device plugin chooses the GPUs: what it will get, at best, worst and likely.

The node can be chosen and its GPUs cannot. So a node fits only if every set that the plugin may hand out satisfies the pod, and
is worth what those sets are worth on average. Which set it was is known only when the node's agent has seen it.
"""

from __future__ import annotations

from dataclasses import replace

from topology.bandwidth import Bandwidth
from topology.nvidia_best_effort import Outcome, outcomes
from topology.placement import Placement, Rejection, TopologyClass, plan
from topology.request import GpuRequest
from topology.value import score

MAX_REMEMBERED = 10_000
"""Forecasts kept for one class; the first of each takes some tens of milliseconds."""


class Forecasts:
    """Placements under NVIDIA's plugin for the nodes of one topology class, each worked out once."""

    def __init__(self, topology_class: TopologyClass) -> None:
        self._class = topology_class
        self._outcomes: dict[tuple[int, int], tuple[Outcome, ...]] = {}
        self._known: dict[tuple[int, GpuRequest], Placement | Rejection] = {}

    def plan(self, free: int, request: GpuRequest) -> Placement | Rejection:
        """Return the likeliest placement, with the score to be expected, or why the node does not fit.

        Its bandwidth reaches from the worst to the best that the plugin may hand out, around the mean.
        """
        key = free, request
        if key not in self._known:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = self._forecast(free, request)
        return self._known[key]

    def _forecast(self, free: int, request: GpuRequest) -> Placement | Rejection:
        wished = plan(self._class, free, request)
        if isinstance(wished, Rejection) or request.gpus == 0:
            return wished
        found: list[tuple[Outcome, Placement]] = []
        for outcome in self._may_get(free, request.gpus):
            got = plan(self._class, outcome.gpus, request)
            if isinstance(got, Rejection):
                return replace(got, message=f"the device plugin may choose so that {got.message}")
            found.append((outcome, got))
        expected = sum(outcome.share * self._score(free, outcome.gpus, got, request) for outcome, got in found)
        return replace(found[0][1], score=expected, bandwidth=_spread(found))

    def _may_get(self, free: int, gpus: int) -> tuple[Outcome, ...]:
        key = free, gpus
        if key not in self._outcomes:
            if len(self._outcomes) >= MAX_REMEMBERED:
                self._outcomes.clear()
            self._outcomes[key] = outcomes(self._class.node, free, gpus)
        return self._outcomes[key]

    def _score(self, free: int, chosen: int, got: Placement, request: GpuRequest) -> float:
        lost = self._class.value(free) - self._class.value(free & ~chosen)
        return score(request.gpus, got.bandwidth, request.communication, lost, self._class.weights)


def _spread(found: list[tuple[Outcome, Placement]]) -> Bandwidth | None:
    rates = [(outcome.share, got.bandwidth) for outcome, got in found if got.bandwidth is not None]
    if not rates:
        return None
    return Bandwidth(
        low=min(rate.low for _, rate in rates),
        point=sum(share * rate.point for share, rate in rates),
        high=max(rate.high for _, rate in rates),
    )
