"""Count the pods of each size that the cluster has room for, now and if it were empty.

Name the pods that stand in the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from heapq import nsmallest
from operator import or_
from typing import Final

from pydantic import Field

from extender.cluster.candidates.shape import Shape
from extender.cluster.node_view import NodeView
from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer
from extender.inspect.rows import rows
from extender.inspect.share_room import ShareRoom, room_for_shares
from topology.effort import finish
from topology.node.links import Affinity
from topology.placement.shares import NO_SHARES
from topology.request.gpu_request import GpuRequest
from topology.value.score import Weights

SHOWN: Final = 3
"""Pods in the way, of each size."""


NODES_A_STEP: Final = 200
"""Whose kinds are told apart in one step, some tenths of a millisecond."""
KINDS_A_STEP: Final = 50
"""That are put together in one step, which takes as long."""

_Count = Callable[[Shape, int], int]


class InTheWay(Answer):
    """A pod whose leaving would make room."""

    namespace: str
    name: str
    node: str
    gpus: int
    """How many it holds."""
    room: int
    """For how many more pods of the size there would be room without it."""


class Room(Answer):
    """What there is room for, for pods of one size that require NVLink if they have several GPUs."""

    gpus: int
    now: int
    """Pods that fit, one after the other, on the GPUs that are free."""
    by_count: int
    """Pods that kube-scheduler alone would find room for: it counts GPUs, and sees no links."""
    empty: int
    """Pods that would fit if no GPU were held."""
    in_the_way: tuple[InTheWay, ...] = ()
    """Those whose leaving would make the most room, few GPUs first."""


class Fragmentation(Answer):
    """The cluster's, by the sizes of pods."""

    sizes: tuple[Room, ...]
    shares: tuple[ShareRoom, ...] = Field(default=(), exclude_if=lambda shares: not shares)
    """By the sizes of shares of a GPU, where some node shares its GPUs."""
    estimate: bool = True
    """Worked out from annotations alone, without what a running extender holds."""


@dataclass(slots=True)
class Fits:
    """The same in figures alone; see `Room`."""

    now: int = 0
    by_count: int = 0
    empty: int = 0


@dataclass(frozen=True, slots=True)
class _Counted:
    pods: int
    is_all: bool
    weights: Weights | None
    """That the class was appraised with: with others, plans come out differently."""


def fragmentation(state: ClusterState) -> Fragmentation:
    """Return the room for pods of 1, 2, 4, 8 … GPUs, up to the largest machine; linear in nodes, pods and sizes."""
    views, counted = _open(state), cache(_how_many_fit)
    return Fragmentation(
        sizes=tuple(
            Room(
                gpus=gpus,
                now=fits.now,
                by_count=fits.by_count,
                empty=fits.empty,
                in_the_way=_most(state, views, gpus, counted),
            )
            for gpus, fits in finish(RoomCounter().count(state)).items()
        ),
        shares=room_for_shares(views),
    )


class RoomCounter:
    """Counts what there is room for, again and again: a kind of node that was there the last time costs a look-up."""

    def __init__(self) -> None:
        self._known: dict[tuple[Shape, int], _Counted] = {}

    def count(self, state: ClusterState) -> Generator[None, None, Mapping[int, Fits]]:
        """Count by size what there is room for now, in small steps; linear in nodes and in sizes times kinds of nodes.

        Where effort is bounded, what is still searched for is no room yet.
        """
        alike, largest = Counter[tuple[Shape, int]](), 0
        for number, view in enumerate(_open(state)):
            if not number % NODES_A_STEP:
                yield
            alike[view.shape, view.fit] += 1
            largest = max(largest, len(view.uuids))
        now, empty = Counter[Shape](), Counter[Shape]()
        for number, ((shape, fit), nodes) in enumerate(alike.items()):
            if not number % KINDS_A_STEP:
                yield
            plain = replace(shape, cpu_milli=None, doubtful=0, shares=NO_SHARES)
            now[plain] += nodes
            empty[replace(plain, free=fit, hidden=0)] += nodes
        before, self._known = self._known, {}
        rooms = {1 << power: Fits() for power in range(largest.bit_length())}
        for gpus, fits in rooms.items():
            for shape, nodes in now.items():
                fits.now += nodes * self._how_many_fit(before, shape, gpus)
                fits.by_count += nodes * ((shape.free & shape.devices_for(nvlink_request(gpus))).bit_count() // gpus)
                yield
            for shape, nodes in empty.items():
                fits.empty += nodes * self._how_many_fit(before, shape, gpus)
                yield
        return rooms

    def _how_many_fit(self, before: Mapping[tuple[Shape, int], _Counted], shape: Shape, gpus: int) -> int:
        key, weights = (shape, gpus), shape.topology_class.appraised if shape.topology_class else None
        counted = self._known.get(key) or before.get(key)
        if counted is None or counted.weights is not weights:
            counted = _Counted(*shape.how_many_fit(nvlink_request(gpus)), weights)
        if counted.is_all:
            self._known[key] = counted
        return counted.pods


def _open(state: ClusterState) -> list[NodeView]:
    return [view for view in state.views.values() if view.shape.topology_class and view.is_open]


def nvlink_request(gpus: int) -> GpuRequest:
    """Return the request of a pod that requires NVLink between its GPUs, if it has several."""
    return replace(GpuRequest.plain(gpus), required=Affinity.NVLINK) if gpus > 1 else GpuRequest.plain(1)


def _how_many_fit(shape: Shape, gpus: int) -> int:
    return shape.how_many_fit(nvlink_request(gpus))[0]


def _most(state: ClusterState, views: list[NodeView], gpus: int, counted: _Count) -> tuple[InTheWay, ...]:
    pods = (pod for view in views for pod in rows(view.name, partial(_in_the_way, state, view, gpus, counted)))
    return tuple(nsmallest(SHOWN, pods, key=lambda pod: (-pod.room, pod.gpus, pod.namespace, pod.name)))


def _in_the_way(state: ClusterState, view: NodeView, gpus: int, counted: _Count) -> Iterator[InTheWay]:
    now, taken = counted(view.shape, gpus), view.taken()
    for owner, held in taken.items():
        pod = state.pods.get(owner) if isinstance(owner, str) else None
        key = pod.key if pod else owner
        freed = held & view.fit & ~reduce(or_, (mask for holder, mask in taken.items() if holder != owner), 0)
        room = counted(replace(view.shape, free=view.shape.free | freed), gpus) - now
        if room > 0 and isinstance(key, tuple):
            yield InTheWay(namespace=key[0], name=key[1], node=view.name, gpus=held.bit_count(), room=room)
