"""The placement of a pod on a node where NVIDIA's device plugin chooses the GPUs: what it will get, at best, worst and likely.

The node can be chosen and its GPUs cannot. So a node fits only if every set that the plugin may hand out satisfies the
pod. It is worth what those sets are worth on average. Which set it was is known only when the node's agent has seen it.
"""

from __future__ import annotations

from dataclasses import replace

from topology.bandwidth.predict import Bandwidth
from topology.effort import Search
from topology.placement.nvidia_best_effort import Outcome
from topology.placement.plan import Parts, planned
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import UNDECIDED, Placement, Rejection
from topology.request.gpu_request import GpuRequest
from topology.value.score import score

_ENFORCE = "in mode enforce gputopo chooses"


def forecast(topology_class: TopologyClass, free: int, request: GpuRequest, parts: Parts = ()) -> Placement | Rejection:
    """Return the likeliest placement, with the score to be expected, or why the node does not fit; remembered by the class.

    Its bandwidth reaches from the worst to the best that the plugin may hand out, around the mean. It is measured where
    the bandwidth of each of these sets is. `UNDECIDED` as in `plan`.
    """
    return topology_class.recall(_forecast, free, request, parts) or UNDECIDED


def _forecast(
    topology_class: TopologyClass, free: int, request: GpuRequest, parts: Parts
) -> Search[Placement | Rejection]:
    best = yield from planned(topology_class, free, request, parts)
    if isinstance(best, Rejection) or request.gpus == 0:
        return best
    found: list[tuple[Outcome, Placement]] = []
    for outcome in (yield from _outcomes(topology_class, free, parts or ((free, request.gpus),))):
        got = yield from planned(topology_class, outcome.gpus, request)
        if isinstance(got, Rejection):
            return replace(got, message=f"the device plugin may choose so that {got.message}", remedy=_ENFORCE)
        found.append((outcome, got))
    expected = expected_lost = 0.0
    for outcome, got in found:
        lost = yield from topology_class.loss(free, outcome.gpus)
        expected += outcome.share * score(request, got.bandwidth, got.affinity, lost, topology_class.weights)
        expected_lost += outcome.share * lost
    return replace(found[0][1], score=expected, value_lost=expected_lost, bandwidth=_spread(found))


def _outcomes(topology_class: TopologyClass, free: int, parts: Parts) -> Search[tuple[Outcome, ...]]:
    """Return what the plugin may hand out; it is asked about each part for itself."""
    found: tuple[Outcome, ...] = (Outcome(0, 1.0),)
    for part, count in parts:
        here = yield from topology_class.outcomes(free & part, count)
        found = tuple(Outcome(one.gpus | other.gpus, one.share * other.share) for one in found for other in here)
    return found


def _spread(found: list[tuple[Outcome, Placement]]) -> Bandwidth | None:
    rates = [(outcome.share, got.bandwidth) for outcome, got in found if got.bandwidth is not None]
    if not rates:
        return None
    return Bandwidth(
        low=min(rate.low for _, rate in rates),
        point=sum(share * rate.point for share, rate in rates),
        high=max(rate.high for _, rate in rates),
        measured=all(rate.measured for _, rate in rates),
    )
