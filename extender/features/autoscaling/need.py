"""Whether a new node would help a pod that waits, and what a placeholder has to ask for so that autoscalers see it.

Autoscalers count. A pod that is refused for links fits by count, so no node comes for it. A placeholder that requests one
GPU more than any refused node has free fits nowhere by count. It may only go to groups whose empty nodes would take the
pod.

Autoscalers do not see a pod behind the queue's gate at all. So a placeholder stands for it whatever it has no room for. Of what
the ResourceClaims of a pod accept, the first alternative counts.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.verbs.pod_context import PodContext
from topology.effort import Search
from topology.errors import RequestError
from topology.placement.verdict import Reason
from topology.request.gpu_request import AcceptedDevices, GpuRequest

WIRES: Final = frozenset({Reason.AFFINITY, Reason.BANDWIDTH, Reason.NIC, Reason.UNSUITABLE_GPUS, Reason.DRIVER})
"""What no count tells, and another machine may have."""
NODES_AT_ONCE: Final = 32
"""Counted in one step: up to three milliseconds, where claims hold all devices."""


@dataclass(frozen=True, slots=True)
class Need:
    """A new node would help."""

    gpus: int
    """That the placeholder asks for: more than any node of these groups has free, and no more than an empty one has."""
    groups: tuple[str, ...]
    """Of which a new node would take the pod."""
    request: GpuRequest
    """What the pod asks for."""
    pods_per_node: int
    """How many pods with that request a new node takes, at least."""
    devices: AcceptedDevices = field(default_factory=AcceptedDevices)
    """What the pod's ResourceClaims accept as a GPU."""

    @property
    def kind(self) -> Hashable:
        """What is equal of pods that one new node may take together."""
        return self.request, self.devices


class NoNeed(StrEnum):
    """Why no node is asked for."""

    OTHER_REASON = "the pod waits for another reason than links"
    SEEN_BY_COUNT = "no node has so many GPUs free: autoscalers see that themselves"
    DOMAIN = "the pod's group has to stay in one domain, and nobody knows which one a new node would be in"
    NO_GROUP = "an empty node of no known group would take the pod"
    NO_LARGER = "nodes that refuse the pod have as many GPUs free as a new node would have"

    @property
    def is_final(self) -> bool:
        """Whether the pod is to be told: it waits for what no autoscaler will bring."""
        return self in {NoNeed.DOMAIN, NoNeed.NO_GROUP, NoNeed.NO_LARGER}


class FreeCounts:
    """How many GPUs of each node are free by count, as autoscalers see it; each node is counted once."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[str, int] = {}

    def read(self, names: Iterable[str]) -> Search[None]:
        """Count these nodes in steps: all of a large cluster take half a second."""
        for number, name in enumerate(name for name in names if name not in self._known):
            if number % NODES_AT_ONCE == NODES_AT_ONCE - 1:
                yield
            self.of(name)

    def most_of(self, names: Iterable[str]) -> int:
        """Return the highest of these nodes' counts, 0 for no node."""
        return max(map(self.of, names), default=0)

    def of(self, name: str) -> int:
        """Return what is offered on a node less what pods there have; sick GPUs count, as autoscalers do not know of them."""
        count = self._known.get(name)
        if count is None:
            view = self._state.views.get(name)
            count = self._known[name] = (
                self._without_claims(name, view) if view and view.by_claim else self._count(name)
            )
        return count

    def _without_claims(self, name: str, view: NodeView) -> int:
        """Count the devices that no ResourceClaim holds."""
        return len(view.uuids) - len(self._state.claims.on(name).held.keys() & {*view.uuids})

    def _count(self, name: str) -> int:
        node = self._state.nodes.get(name)
        offered = (node.node.status.allocatable or {}).get(self._state.resource, "0") if node else "0"
        taken = sum(pod.gpus or 0 for pod in self._state.pods.bound_to(name) if not pod.ended)
        return max(0, int(offered) - taken) if offered.isascii() and offered.isdigit() and len(offered) < 10 else 0


def need_of(
    state: ClusterState, pod: GpuPod, refused_by: Collection[str], counts: FreeCounts, now: Instant
) -> Need | NoNeed:
    """Say what to ask for, for a pod that these nodes refuse; they are all that labels, taints and the like let through.

    A pod behind the queue's gate has no room on any of them.
    """
    is_held_for = state.holds.firm_of(pod.uid, now.monotonic) is not None  # it waits for others to end or to move
    if is_held_for or not (_lacks_links(state, pod) or pod.has_plan_gate):
        return NoNeed.OTHER_REASON
    try:
        context = PodContext.read(state, pod.pod, now)
    except RequestError:
        return NoNeed.OTHER_REASON
    is_slice_of_claim = context.request.by_claim and context.request.profile
    if context.request.is_share or is_slice_of_claim:  # how a new node is cut is not known before its agent tells
        return NoNeed.OTHER_REASON
    if not pod.has_plan_gate and counts.most_of(refused_by) < context.request.gpus:
        return NoNeed.SEEN_BY_COUNT
    if context.group is not None and context.group.required:
        return NoNeed.DOMAIN
    with state.effort.bounded():
        groups = state.node_groups.would_take(context.request)
    if not groups:
        return NoNeed.NO_GROUP
    free = _most_free_by_group(state, refused_by, counts)
    larger = [group for group in groups if group.gpus > free.get(group.name, 0)]
    if not larger:
        return NoNeed.NO_LARGER
    return Need(
        gpus=max(context.request.gpus, *(free.get(group.name, 0) + 1 for group in larger)),
        groups=tuple(group.name for group in larger),
        request=context.request,
        pods_per_node=max(1, min(group.how_many_fit(context.request) for group in larger)),
        devices=next(iter(context.accepted_devices), AcceptedDevices()),
    )


def _lacks_links(state: ClusterState, pod: GpuPod) -> bool:
    refusal = state.memory.refusals.of(pod.uid)
    return refusal is not None and bool(refusal.reasons & WIRES)


def _most_free_by_group(state: ClusterState, names: Iterable[str], counts: FreeCounts) -> dict[str, int]:
    """Return group → most free; a node that has not published its topology counts: it may be the one that was asked for."""
    label, views, most = state.node_groups.label, state.views, dict[str, int]()
    for name in names:
        group = (views[name].node.metadata.labels or {}).get(label) if name in views else None
        if group:
            most[group] = max(most.get(group, 0), counts.of(name))
    return most
