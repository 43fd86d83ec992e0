"""Where a pod could go that nobody has created; it leaves no trace."""

from __future__ import annotations

from msgspec.structs import replace

from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.inspect.inspection import Explanation, PodInfo, explained
from extender.inspect.judgement import Barred
from extender.inspect.other_schedulers import scheduler_problem
from extender.inspect.pods import what_counts
from extender.kit.clock import Instant
from extender.verbs.pod_context import PodContext
from topology.errors import RequestError


def nobody_yet(pod: Pod) -> Pod:
    """Return a pod without what its text says of an identity or an age: it may be a copy of a pod that exists."""
    return replace(pod, metadata=replace(pod.metadata, uid="", resource_version="", creation_timestamp=None))


def what_if(state: ClusterState, pod: Pod, now: Instant, barred: Barred | None = None) -> Explanation:
    """Say where a pod could go if it were created now, and why not elsewhere, as filter and prioritize would.

    `barred` is what `prepare_judgement` has returned for `nobody_yet` of the pod, if it was called.
    """
    pod = nobody_yet(pod)
    try:
        context = PodContext.read(state, pod, now)
    except RequestError as error:
        return Explanation(
            pod=_info(pod, None),
            fits=(),
            refusals=(),
            problem=str(error),
            scheduler_problem=scheduler_problem(state, pod),
        )
    if not context.request.asks:
        whole, slices, shares = what_counts(state.resource)
        problem = f"it asks for none of {whole}, {slices} and {shares}"
        return Explanation(pod=_info(pod, 0), fits=(), refusals=(), problem=problem)
    return explained(state, _info(pod, context.request.gpus, context.request.memory_gib), context, barred)


def _info(pod: Pod, gpus: int | None, shares_gib: tuple[int, ...] = ()) -> PodInfo:
    return PodInfo(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid="",
        phase=None,
        gpus=gpus,
        node=None,
        containers=None,
        indexes=(),
        affinity=None,
        bandwidth_gb_per_s=None,
        shares_gib=shares_gib,
    )
