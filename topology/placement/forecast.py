"""The placement of a pod on a node where NVIDIA's device plugin chooses the GPUs: what it will get, at best, worst and likely.

The node can be chosen and its GPUs cannot. So a node fits only if every set that the plugin may hand out satisfies the pod, and
is worth what those sets are worth on average. Which set it was is known only when the node's agent has seen it.
"""

from __future__ import annotations

from dataclasses import replace

from topology.bandwidth import Bandwidth
from topology.placement.nvidia_best_effort import Outcome, outcomes
from topology.placement.plan import MAX_PLANS, plan
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement, Rejection
from topology.request import GpuRequest
from topology.value import score


def forecast(topology_class: TopologyClass, free: int, request: GpuRequest) -> Placement | Rejection:
    """Return the likeliest placement, with the score to be expected, or why the node does not fit; remembered by the class.

    Its bandwidth reaches from the worst to the best that the plugin may hand out, around the mean.
    """
    known, key = topology_class.forecasts, (free, request)
    if key not in known:
        if len(known) >= MAX_PLANS:
            known.clear()
        known[key] = _forecast(topology_class, free, request)
    return known[key]


def _forecast(topology_class: TopologyClass, free: int, request: GpuRequest) -> Placement | Rejection:
    wished = plan(topology_class, free, request)
    if isinstance(wished, Rejection) or request.gpus == 0:
        return wished
    found: list[tuple[Outcome, Placement]] = []
    for outcome in _outcomes(topology_class, free, request.gpus):
        got = plan(topology_class, outcome.gpus, request)
        if isinstance(got, Rejection):
            return replace(got, message=f"the device plugin may choose so that {got.message}")
        found.append((outcome, got))
    expected = sum(outcome.share * _score(topology_class, free, outcome.gpus, got, request) for outcome, got in found)
    return replace(found[0][1], score=expected, bandwidth=_spread(found))


def _outcomes(topology_class: TopologyClass, free: int, gpus: int) -> tuple[Outcome, ...]:
    known, key = topology_class.outcomes, (free, gpus)
    if key not in known:
        if len(known) >= MAX_PLANS:
            known.clear()
        known[key] = outcomes(topology_class.node, free, gpus)
    return known[key]


def _score(topology_class: TopologyClass, free: int, chosen: int, got: Placement, request: GpuRequest) -> float:
    lost = topology_class.value_lost(free, chosen)
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
