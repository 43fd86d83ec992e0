"""Which pods of the queue are planned ahead next, and what is on its way to others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from extender.clock import Instant
from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.node_view import NodeView
from extender.cluster.objects.constraints import is_plain, may_go
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.quantities import cpu_milli
from extender.cluster.state import ClusterState
from extender.steering.plan import Wanted
from extender.verbs.asked import Asked
from topology.errors import RequestError
from topology.placement.verdict import Placement

LOOKED_AT: Final = 2000
"""Pods from the head of the queue: whoever cannot be planned must not hide those behind, nor cost a walk through all."""
READ: Final = 256
"""Of these, what they ask for."""
LEAD: Final = 4
"""About so many pods kube-scheduler takes while a nomination is on its way. One that comes too late is a write for nothing, and
the Binding that it meets fails."""


@dataclass(frozen=True, slots=True)
class NodesOfCluster:
    """The nodes of a cluster, with what of kube-scheduler's rules is read here."""

    state: ClusterState

    @property
    def names(self) -> Mapping[str, NodeView]:
        """All of them."""
        return self.state.views

    @property
    def shapes(self) -> ShapeIndex:
        """The same by shape."""
        return self.state.shapes

    def lets(self, pod: Pod, node: str, taken_cpu_milli: int) -> bool:
        """Whether labels, taints and CPU let the pod go there."""
        item = self.state.views[node].node
        if not may_go(pod, item):
            return False
        free = self.state.cpu.free_milli(item)
        return free is None or cpu_milli(pod) + taken_cpu_milli <= free


def next_wanted(
    state: ClusterState,
    schedulers: Collection[str],
    now: Instant,
    *,
    at_most: int,
    ahead: Collection[str] | None,
    may_begin: Callable[[GpuPod], bool],
) -> list[Wanted]:
    """Return so many of the pods that wait for these schedulers, and that nothing is known of yet, in their order.

    Args:
        state: The cluster.
        schedulers: Whose queue it is.
        now: This moment.
        at_most: So many.
        ahead: The nominated ones that kube-scheduler is yet to ask about; `None` where it takes no pods now.
        may_begin: Whether nothing else speaks against one.

    """
    pods = map(state.pods.get, _behind(state, schedulers, now, ahead))
    plain = (pod for pod in pods if pod is not None and _may_be_planned(state, pod) and may_begin(pod))
    return list(islice(_read(state, islice(plain, READ), now), at_most))


def _behind(
    state: ClusterState, schedulers: Collection[str], now: Instant, ahead: Collection[str] | None
) -> Iterator[str]:
    """Yield the pods that nothing is held for, but for those that kube-scheduler is about to take."""
    held, lead = state.holds.places(now.monotonic), 0 if ahead is None else LEAD
    for uid in islice(state.waiting.line(schedulers), LOOKED_AT):
        if uid in held:
            lead -= uid in (ahead or ())
        elif lead > 0 and state.refusals.of(uid) is None:  # one that was refused waits until something happens
            lead -= 1
        else:
            yield uid


def on_their_way(state: ClusterState, now: Instant) -> dict[str, Held]:
    """Return node → what is held, or what pods will get which somebody else has nominated."""
    taken = state.holds.others("", now.monotonic)
    on_the_way = state.holds.places(now.monotonic)
    for uid, pod in state.waiting.nominated.items():
        view = state.views.get(pod.pod.status.nominated_node_name or "")
        if uid in on_the_way or view is None:
            continue
        for wanted in _read(state, [pod], now):
            held = taken.get(view.name, NOTHING)
            verdict = view.decide_for(uid, wanted.request, held)
            if isinstance(verdict, Placement):
                taken[view.name] = held + Held.of(verdict, wanted.request)
    return taken


def _may_be_planned(state: ClusterState, pod: GpuPod) -> bool:
    """Whether nobody has nominated it, it holds nothing yet, and its place rests on nothing that is not looked at here."""
    status = pod.pod.status
    is_new = not (status.nominated_node_name or status.extended_resource_claim_status or state.claimed_on(pod.uid))
    return is_new and is_plain(pod.pod)


def _read(state: ClusterState, pods: Iterator[GpuPod] | list[GpuPod], now: Instant) -> Iterator[Wanted]:
    """Yield those that ask for GPUs alone: where a pod of a group may go depends on its others."""
    for pod in pods:
        try:
            asked = Asked.read(state, pod.pod, now)
        except RequestError:
            continue
        if asked.request.asks and asked.group is None:
            yield Wanted(pod.pod, asked.request, tuple(asked.away(state)))
