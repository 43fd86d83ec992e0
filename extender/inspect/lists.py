"""Lists of nodes and pods: filtered, sorted, a page at a time, and made in steps, since there may be tens of thousands.

A place in a list is a figure and a name. The figure is what the list is sorted by; a page begins after the place of the last row
before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from heapq import nsmallest
from itertools import chain, islice
from typing import Final

from extender.cluster.candidates.holds import NOTHING
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer, NodeInfo, PodInfo, node_names, nodes, pod_info
from extender.inspect.islands import has_free_island, islands_of, largest_free_island
from extender.inspect.rows import row
from extender.inspect.sight import Sight
from extender.inspect.waiting import WaitingPod, waiting_pod
from extender.kit.clock import Instant
from topology.effort import Search

Islands = tuple[tuple[int, ...], ...]
"""Places in `gpus` of a node of those that NVLinks join."""
Place = tuple[int, str]
"""Of a row in its list."""
NODES_A_STEP: Final = 50
PODS_A_STEP: Final = 500
_END_OF_TIME: Final = Instant(monotonic=0.0, wall=float(1 << 40))


class NodeOrder(StrEnum):
    """What nodes are sorted by."""

    NAME = "name"
    FREE = "free"
    """Those with most free GPUs first."""
    GPUS = "gpus"
    """The largest first."""


class PodOrder(StrEnum):
    """What pods are sorted by."""

    NAME = "name"
    AGE = "age"
    """The oldest first."""
    GPUS = "gpus"
    """Those with most GPUs first."""


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which nodes are listed, and in which order."""

    containing: str = ""
    """A part of their names."""
    namespace: str = ""
    """Only those with pods of this namespace."""
    owner: str = ""
    """Only those with pods whose owner's `Kind/name` contains this."""
    island: int = 0
    """Only those with so many free GPUs that NVLinks join; 0: all."""
    order: NodeOrder = NodeOrder.NAME


@dataclass(frozen=True, slots=True)
class PodFilter:
    """Which pods are listed, and in which order."""

    containing: str = ""
    """A part of `namespace/name`."""
    namespace: str = ""
    owner: str = ""
    """A part of `Kind/name` of the owner."""
    waits: bool | None = None
    """Only those without a node, or only those with one; `None`: all."""
    order: PodOrder = PodOrder.NAME


class NodeRow(Answer):
    """One node of a list."""

    node: NodeInfo
    islands: Islands
    free_island: int
    """How many free GPUs NVLinks still join, in the largest set; 1 or 0 where there is none."""


class PodRow(Answer):
    """One pod of a list."""

    pod: PodInfo
    owner: str
    """`Kind/name`; empty where nothing controls it."""
    seconds: float
    """Since it was created."""
    waiting: WaitingPod | None
    """`None` once it has a node."""


def owner_name(pod: GpuPod) -> str:
    """Return `Kind/name` of what controls a pod; empty where nothing does."""
    owner = pod.pod.metadata.controller
    return f"{owner.kind}/{owner.name}" if owner else ""


def select_nodes(
    state: ClusterState, wanted: NodeFilter, sight: Sight, now: Instant, after: Place | None, count: int
) -> Search[list[Place]]:
    """Search for the first `count` places of a list of nodes, after one of them; linear in nodes and pods."""
    with_pods = (yield from _nodes_with_pods(state, wanted, sight)) if wanted.namespace or wanted.owner else None
    held, first = state.holds.others("", now.monotonic), list[Place]()

    def place_of(name: str) -> Place | None:
        view, kept = state.views.get(name), held.get(name, NOTHING).touched
        if view is None or (with_pods is not None and name not in with_pods):
            return None
        place = _place_of_node(view, kept, wanted.order)
        is_before = after is not None and place <= after
        return None if is_before or (wanted.island and not _has_island(view, kept, wanted.island)) else place

    names = node_names(state, wanted.containing)
    while step := [*islice(names, NODES_A_STEP)]:
        first = nsmallest(count, chain(first, filter(None, map(place_of, step))))
        yield
    return first


def select_pods(
    state: ClusterState, wanted: PodFilter, sight: Sight, after: Place | None, count: int
) -> Search[list[Place]]:
    """Search for the first `count` places of a list of pods that have not ended, after one of them; linear in pods."""
    everything, first = [*state.pods], list[Place]()
    for start in range(0, len(everything), PODS_A_STEP):
        admitted = (pod for pod in everything[start : start + PODS_A_STEP] if _is_listed(state, pod, wanted, sight))
        places = (_place_of_pod(pod, wanted.order) for pod in admitted)
        first = nsmallest(count, chain(first, (place for place in places if after is None or place > after)))
        yield
    return first


def node_rows(state: ClusterState, names: Iterable[str], sight: Sight, now: Instant) -> Iterator[NodeRow]:
    """Yield the rows of nodes that are still known."""
    held = state.holds.others("", now.monotonic)
    for info, islands in with_islands(state, names, now):
        view = state.views[info.name]
        with state.effort.bounded():
            kept = held.get(info.name, NOTHING).touched
            largest = largest_free_island(view.shape, kept, islands) if view.is_open else 0
        yield NodeRow(node=sight.node(info), islands=islands, free_island=largest)


def with_islands(state: ClusterState, names: Iterable[str], now: Instant) -> Iterator[tuple[NodeInfo, Islands]]:
    """Yield the nodes that are still known, with the places of the GPUs that NVLinks join."""
    islands_of_class = cache(lambda topology_class: islands_of(topology_class.node))
    for info in nodes(state, names, now):
        topology_class = state.views[info.name].shape.topology_class
        yield info, islands_of_class(topology_class) if topology_class and info.gpus else ()


def pod_rows(state: ClusterState, names: Iterable[str], now: Instant) -> Iterator[PodRow]:
    """Yield the rows of pods, called `namespace/name`, that are still known."""
    for name in names:
        pod = state.pods.find(*name.split("/", 1))
        if pod and (made := row(name, partial(_pod_row, state, pod, now), None)):
            yield made


def _nodes_with_pods(state: ClusterState, wanted: NodeFilter, sight: Sight) -> Search[set[str]]:
    pods = PodFilter(namespace=wanted.namespace, owner=wanted.owner, waits=False)
    everything, names = [*state.pods], set[str]()
    for start in range(0, len(everything), PODS_A_STEP):
        step = everything[start : start + PODS_A_STEP]
        names |= {pod.node for pod in step if pod.node and _is_listed(state, pod, pods, sight)}
        yield
    return names


def _has_island(view: NodeView, held: int, gpus: int) -> bool:
    return view.is_open and has_free_island(view.shape, held, gpus)


def _place_of_node(view: NodeView, held: int, order: NodeOrder) -> Place:
    match order:
        case NodeOrder.NAME:
            return 0, view.name
        case NodeOrder.FREE:
            return -((view.shape.free_gpus & ~held).bit_count() if view.is_open else 0), view.name
        case NodeOrder.GPUS:
            return -len(view.uuids), view.name


def _place_of_pod(pod: GpuPod, order: PodOrder) -> Place:
    name = "/".join(pod.key)
    match order:
        case PodOrder.NAME:
            return 0, name
        case PodOrder.AGE:
            created = pod.pod.metadata.creation_timestamp
            return int(_END_OF_TIME.wall - _END_OF_TIME.age_seconds(created)), name
        case PodOrder.GPUS:
            return -(pod.gpus or 0), name


def _is_listed(state: ClusterState, pod: GpuPod, wanted: PodFilter, sight: Sight) -> bool:
    return (
        not pod.stopped
        and sight.sees(pod.key[0])
        and wanted.namespace in ("", pod.key[0])
        and (wanted.waits is None or wanted.waits is (pod.node is None))
        and wanted.containing in "/".join(pod.key)
        and (not wanted.owner or wanted.owner in owner_name(pod))
        and pod.uid not in state.indexes.stand_ins
    )


def _pod_row(state: ClusterState, pod: GpuPod, now: Instant) -> PodRow:
    return PodRow(
        pod=pod_info(state, pod),
        owner=owner_name(pod),
        seconds=now.age_seconds(pod.pod.metadata.creation_timestamp),
        waiting=waiting_pod(state, pod, now) if pod.node is None else None,
    )
