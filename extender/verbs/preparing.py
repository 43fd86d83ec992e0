"""The first call of a new kind of request, in slices: thousands of shapes are decided on, and others have their turns meanwhile.

What is decided is what would be decided at once. Each slice takes what is new by then. The call itself, which takes no pause,
decides on what is left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from extender.cluster.state import ClusterState
from extender.verbs.names import Names
from extender.verbs.pod_context import PodContext
from extender.verbs.ranking import Ranking
from topology.effort import Allowance, Search
from topology.request.gpu_request import GpuRequest

PREPARE_STEPS: Final = 10_000
"""In one slice, about 5 ms: a hundred shapes, where nothing has to be searched for or valued."""


def prepare(state: ClusterState, context: PodContext, allowance: Allowance) -> Search[None]:
    """Decide on the shapes that nobody has decided on for such a request; nothing to do takes no pause."""
    request, namespace = context.request, context.pod.metadata.namespace
    requests = [request]
    if context.group is not None and request.preferred and not request.required:
        requests.append(replace(request, required=request.preferred))
    for request_now in requests:
        yield from prepare_request(state, request_now, namespace, allowance, counts=context.group is not None)


def prepare_request(
    state: ClusterState, request: GpuRequest, namespace: str, allowance: Allowance, *, counts: bool = False
) -> Search[None]:
    """Do so for one request; `counts`: count how many such pods fit, too."""
    shapes = state.shapes
    while True:
        with state.effort.bounded(allowance):
            is_ready = shapes.prepare(request, PREPARE_STEPS, namespace, counts=counts)
        if is_ready:
            return
        yield


def ranked(state: ClusterState, context: PodContext, names: Names) -> Search[Ranking]:
    """Rank these nodes, once all is prepared."""
    allowance = Allowance()
    yield from prepare(state, context, allowance)
    with state.effort.bounded(allowance):
        return context.rank_for_now(state, names)
