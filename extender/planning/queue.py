"""The cluster as plans see it: its nodes, where units may go, which pods come next, and what is on its way to others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.node_view import NodeView
from extender.cluster.objects.constraints import is_plain, may_go
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.objects.quantities import memory_bytes, quantity
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.planning.gangs import Places
from extender.planning.planned_nodes import HostDemand, PlannedNodes
from extender.planning.units import PendingPod, Unit
from extender.verbs.pod_context import PodContext
from topology.errors import RequestError
from topology.placement.verdict import Placement
from topology.request.domains import GroupRequest

LOOKED_AT: Final = 2000
"""Pods from the head of the queue: whoever cannot be planned must not hide those behind, nor cost a walk through all."""
READ: Final = 256
"""Of these, what they ask for."""
LEAST_SHARE: Final = 32
"""Of both numbers, of the pods of one namespace; else it is an equal share, so that one tenant's pods do not hide all others."""
LEAD: Final = 4
"""About so many pods kube-scheduler takes while a nomination is on its way. One that comes too late is a write for nothing, and
the Binding that it meets fails."""


@dataclass(frozen=True, slots=True)
class NodesOfCluster:
    """The nodes of a cluster, with what of kube-scheduler's rules is read here."""

    state: ClusterState
    _free_memory: dict[str, int | None] = field(default_factory=dict)
    """By node, for as long as one queue is planned."""

    @property
    def names(self) -> Mapping[str, NodeView]:
        """All of them."""
        return self.state.views

    @property
    def shapes(self) -> ShapeIndex:
        """The same by shape."""
        return self.state.shapes

    def lets(self, pod: Pod, node: str, demand: HostDemand, alternative: int) -> bool | None:
        """Whether labels, taints, claimed devices, CPU and memory let the pod go there."""
        item = self.state.views[node].node
        fits = may_go(pod, item) and self.state.claimed.fits(pod.metadata.uid, node, alternative)
        if not fits:
            return fits
        free, free_memory = self.state.cpu.free_milli(item), self._free_memory_of(item)
        has_cpu = free is None or demand.cpu_milli <= free
        return has_cpu and (free_memory is None or demand.memory_bytes <= free_memory)

    def _free_memory_of(self, node: Node) -> int | None:
        """Return what pods with GPUs have left of the node's memory; `None` where the node does not say how much it has.

        Of all other pods only the CPU is known.
        """
        name = node.metadata.name
        if name not in self._free_memory:
            try:
                allocatable = int(quantity((node.status.allocatable or {})["memory"]))
            except (KeyError, ValueError):
                self._free_memory[name] = None
            else:
                bound = (each for each in self.state.pods.bound_to(name) if not each.ended)
                self._free_memory[name] = allocatable - sum(memory_bytes(each.pod) for each in bound)
        return self._free_memory[name]


@dataclass(slots=True)
class PlacesOfUnits:
    """Where units may go by labels and taints, for as long as one plan is made."""

    state: ClusterState
    _by_kind: dict[Hashable, Places] = field(default_factory=dict)

    def __call__(self, unit: Unit) -> Places:
        """Return the nodes where the first of its members may go, and where they stand."""
        first = unit.members[0]
        kind = first.node_kind
        if kind not in self._by_kind:
            locations = self.state.nodes.locations
            self._by_kind[kind] = {
                view.name: locations[view.name]
                for view in self.state.views.values()
                if view.name in locations and may_go(first.pod, view.node)
            }
        return self._by_kind[kind]


def next_wanted(
    state: ClusterState,
    schedulers: Collection[str],
    now: Instant,
    *,
    at_most: int,
    ahead: Collection[str] | None,
    may_begin: Callable[[GpuPod], bool],
) -> list[PendingPod]:
    """Return so many of the pods that wait for these schedulers, and that nothing is known of yet, in their order.

    Args:
        state: The cluster.
        schedulers: Whose queue it is.
        now: This moment.
        at_most: So many.
        ahead: The nominated ones that kube-scheduler is yet to ask about; `None` where it takes no pods now.
        may_begin: Whether nothing else speaks against one.

    """
    namespaces = max(1, state.indexes.waiting.namespaces(schedulers))
    pods = map(state.pods.get, _behind(state, schedulers, now, ahead, max(LEAST_SHARE, LOOKED_AT // namespaces)))
    plain = (pod for pod in pods if pod is not None and _may_be_planned(state, pod) and may_begin(pod))
    read = islice(_in_shares(plain, max(LEAST_SHARE, READ // namespaces)), READ)
    alone = (wanted for wanted, group in _read(state, read, now) if group is None)  # others depend on their group
    return list(islice(alone, at_most))


def _in_shares(pods: Iterable[GpuPod], share: int) -> Iterator[GpuPod]:
    """Yield at most so many pods of each namespace, in their order."""
    taken = Counter[str]()
    for pod in pods:
        namespace, _ = pod.key
        if taken[namespace] < share:
            taken[namespace] += 1
            yield pod


def _behind(
    state: ClusterState, schedulers: Collection[str], now: Instant, ahead: Collection[str] | None, share: int
) -> Iterator[str]:
    """Yield the pods that nothing is held for, but for those that kube-scheduler is about to take; `share`: of a namespace."""
    held, lead = state.holds.places(now.monotonic), 0 if ahead is None else LEAD
    for uid in islice(state.indexes.waiting.line(schedulers, share), LOOKED_AT):
        if uid in held:
            lead -= uid in (ahead or ())
        elif lead > 0 and state.memory.refusals.of(uid) is None:  # one that was refused waits until something happens
            lead -= 1
        else:
            yield uid


def on_their_way(state: ClusterState, now: Instant, but_for: Collection[str] = ()) -> dict[str, Held]:
    """Return node → what is held, or what pods will get that somebody else has nominated there; `but_for`: keys of holds.

    A pod may have claims already where a share is held for it: that would count twice.
    """
    on_the_way, holds = state.holds.places(now.monotonic), state.holds
    shares = ((uid, node) for uid, node in on_the_way.items() if holds.of(uid, node, now.monotonic).shares)
    claimed = (uid for uid, node in shares if node in state.claimed_on(uid))
    taken = holds.besides({*but_for, *claimed}, now.monotonic)
    for uid, pod in state.indexes.waiting.nominated.items():
        view = state.views.get(pod.pod.status.nominated_node_name or "")
        if uid in on_the_way or view is None or pod.directed_to:  # what the queue has sent there has claims, or nothing
            continue
        for wanted, _ in _read(state, [pod], now):
            held = taken.get(view.name, NOTHING)
            verdict = view.decide_for(uid, wanted.request, held)
            if isinstance(verdict, Placement):
                taken[view.name] = held + Held.of(verdict, wanted.request)
    return taken


def nodes_without(state: ClusterState, now: Instant, kept: Mapping[str, Held], own: Collection[str]) -> PlannedNodes:
    """Return the nodes without what is held for others, and without what the queue keeps for them; `own`: keys of holds.

    A plan that was being made when something was held under these keys may keep the same GPUs: these do not count.
    """
    taken, firm = on_their_way(state, now, own), state.holds.firm(now.monotonic)
    for node, held in kept.items():
        ours = Held.all_of(hold.held for key, hold in firm.get(node, {}).items() if key in own).touched
        shares = tuple(share for share in held.shares if not ours >> share[0] & 1)
        taken[node] = taken.get(node, NOTHING) + Held(held.gpus & ~ours, shares)
    return PlannedNodes(NodesOfCluster(state), taken)


def _may_be_planned(state: ClusterState, pod: GpuPod) -> bool:
    """Whether nobody has nominated it, it holds nothing yet, and its place rests on nothing that is not looked at here."""
    status = pod.pod.status
    is_new = not (status.nominated_node_name or status.extended_resource_claim_status or state.claimed_on(pod.uid))
    return is_new and is_plain(pod.pod)


def _read(
    state: ClusterState, pods: Iterable[GpuPod], now: Instant
) -> Iterator[tuple[PendingPod, GroupRequest | None]]:
    """Yield those that ask for GPUs, with their groups."""
    for pod in pods:
        try:
            asked = PodContext.read(state, pod.pod, now)
        except RequestError:
            continue
        if asked.request.asks:
            yield PendingPod(pod.pod, asked.request, tuple(asked.away(state))), asked.group
