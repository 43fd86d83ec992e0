"""The placement of a pod on a node where NVIDIA's device plugin chooses the GPUs: what it will get, at best, worst and likely.

The node can be chosen and its GPUs cannot. So a node fits only if every set that the plugin may hand out satisfies the pod, and
is worth what those sets are worth on average. Which set it was is known only when the node's agent has seen it.
"""

from __future__ import annotations

from dataclasses import replace

from topology.bandwidth import Bandwidth
from topology.effort import Search
from topology.nvidia_best_effort import Outcome, searched_outcomes
from topology.placement import MAX_PLANS, UNDECIDED, planned
from topology.request import GpuRequest
from topology.topology_class import TopologyClass
from topology.value import score
from topology.verdict import Placement, Rejection


def forecast(topology_class: TopologyClass, free: int, request: GpuRequest) -> Placement | Rejection:
    """Return the likeliest placement, with the score to be expected, or why the node does not fit; remembered by the class.

    Its bandwidth reaches from the worst to the best that the plugin may hand out, around the mean. `UNDECIDED` as in `plan`.
    """
    known, key = topology_class.forecasts, (free, request)
    if key not in known:
        topology_class.seek((forecast, key), lambda: _remembered(topology_class, free, request))
    return known.get(key, UNDECIDED)


def _remembered(topology_class: TopologyClass, free: int, request: GpuRequest) -> Search[None]:
    found = yield from _forecast(topology_class, free, request)
    if len(topology_class.forecasts) >= MAX_PLANS:
        topology_class.forecasts.clear()
    topology_class.forecasts[free, request] = found


def _forecast(topology_class: TopologyClass, free: int, request: GpuRequest) -> Search[Placement | Rejection]:
    wished = yield from planned(topology_class, free, request)
    if isinstance(wished, Rejection) or request.gpus == 0:
        return wished
    found: list[tuple[Outcome, Placement]] = []
    for outcome in (yield from _outcomes(topology_class, free, request.gpus)):
        got = yield from planned(topology_class, outcome.gpus, request)
        if isinstance(got, Rejection):
            return replace(got, message=f"the device plugin may choose so that {got.message}")
        found.append((outcome, got))
    expected = 0.0
    for outcome, got in found:
        expected += outcome.share * (yield from _score(topology_class, free, outcome.gpus, got, request))
    return replace(found[0][1], score=expected, bandwidth=_spread(found))


def _outcomes(topology_class: TopologyClass, free: int, gpus: int) -> Search[tuple[Outcome, ...]]:
    known, key = topology_class.outcomes, (free, gpus)
    if key not in known:
        found = yield from searched_outcomes(topology_class.node, free, gpus, topology_class.meter)
        if len(known) >= MAX_PLANS:
            known.clear()
        known[key] = found
    return known[key]


def _score(topology_class: TopologyClass, free: int, chosen: int, got: Placement, request: GpuRequest) -> Search[float]:
    lost = yield from topology_class.loss(free, chosen)
    return score(request, got.bandwidth, got.affinity, lost, topology_class.weights)


def _spread(found: list[tuple[Outcome, Placement]]) -> Bandwidth | None:
    rates = [(outcome.share, got.bandwidth) for outcome, got in found if got.bandwidth is not None]
    if not rates:
        return None
    return Bandwidth(
        low=min(rate.low for _, rate in rates),
        point=sum(share * rate.point for share, rate in rates),
        high=max(rate.high for _, rate in rates),
    )
