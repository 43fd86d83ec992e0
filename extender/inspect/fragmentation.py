"""How many pods of each size the cluster has room for, how many it would have if it were empty, and who stands in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, reduce
from heapq import nsmallest
from operator import or_
from typing import Final

from extender.cluster.candidates.shape import Shape
from extender.cluster.node_view import NodeView
from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer
from topology.node.links import Affinity
from topology.request.gpu_request import GpuRequest

SHOWN: Final = 3
"""Pods in the way, of each size."""


_Counted = Callable[[Shape, int], int]


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
    estimate: bool = True
    """Worked out from annotations alone, without what a running extender holds."""


def fragmentation(state: ClusterState) -> Fragmentation:
    """Return the room for pods of 1, 2, 4, 8 … GPUs, up to the largest machine; linear in nodes, pods and sizes."""
    views = [view for view in state.views.values() if view.shape.topology_class and view.shape.closed is None]
    largest = max((len(view.uuids) for view in views), default=0)
    counted = cache(_how_many_fit)
    return Fragmentation(
        sizes=tuple(
            Room(
                gpus=gpus,
                now=sum(counted(view.shape, gpus) for view in views),
                by_count=sum(view.shape.free.bit_count() // gpus for view in views),
                empty=sum(counted(replace(view.shape, free=view.fit, hidden=0), gpus) for view in views),
                in_the_way=_most(state, views, gpus, counted),
            )
            for gpus in (1 << power for power in range(largest.bit_length()))
        )
    )


def _how_many_fit(shape: Shape, gpus: int) -> int:
    request = replace(GpuRequest.plain(gpus), required=Affinity.NVLINK) if gpus > 1 else GpuRequest.plain(1)
    return shape.how_many_fit(request)[0]


def _most(state: ClusterState, views: list[NodeView], gpus: int, counted: _Counted) -> tuple[InTheWay, ...]:
    found = (each for view in views for each in _in_the_way(state, view, gpus, counted))
    return tuple(nsmallest(SHOWN, found, key=lambda each: (-each.room, each.gpus, each.namespace, each.name)))


def _in_the_way(state: ClusterState, view: NodeView, gpus: int, counted: _Counted) -> Iterator[InTheWay]:
    now, taken = counted(view.shape, gpus), view.taken()
    for owner, held in taken.items():
        pod = state.pods.get(owner) if isinstance(owner, str) else None
        key = pod.key if pod else owner
        freed = held & view.fit & ~reduce(or_, (mask for other, mask in taken.items() if other != owner), 0)
        room = counted(replace(view.shape, free=view.shape.free | freed), gpus) - now
        if room > 0 and isinstance(key, tuple):
            yield InTheWay(namespace=key[0], name=key[1], node=view.name, gpus=held.bit_count(), room=room)
