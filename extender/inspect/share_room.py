"""For how many shares of each size the cluster has room, and how many it would have if nobody shared anything yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from extender.cluster.node_view import NodeView
from extender.inspect.inspection import Answer

SMALLEST_GIB = 4


class ShareRoom(Answer):
    """What there is room for, for shares of one size; a GPU that has a class counts for pods of that class."""

    gib: int
    now: int
    """Shares that fit, one after the other."""
    by_memory: int
    """Shares that would fit if what is left of all GPUs were one piece."""
    empty: int
    """Shares that would fit if nobody held a GPU, whole or in part."""


def room_for_shares(views: Iterable[NodeView]) -> tuple[ShareRoom, ...]:
    """Return the room for shares of 4, 8, 16 … GiB, up to the largest GPU that is shared; linear in GPUs and sizes."""
    now, empty = list[int](), list[int]()
    for view in views:
        if view.shape.shares.refused is None:
            now += _left(view)
            empty += _sizes(view)
    largest = max(empty, default=0)
    return tuple(
        ShareRoom(
            gib=gib,
            now=sum(left // gib for left in now),
            by_memory=sum(now) // gib,
            empty=sum(size // gib for size in empty),
        )
        for gib in (1 << power for power in range(SMALLEST_GIB.bit_length() - 1, largest.bit_length()))
    )


def _left(view: NodeView) -> Iterator[int]:
    """Yield what is left of each GPU that is shared, or may be from now on."""
    shares = view.shape.shares
    yield from (gpu.room_gib for gpu in shares.shared)
    yield from sorted((shares.share_gib[position] for position in shares.openable), reverse=True)[: shares.more]


def _sizes(view: NodeView) -> list[int]:
    """Return what shares could take of each GPU that may be shared at one time."""
    shares, status = view.shape.shares, view.payloads.status.value
    sizes = {gpu.uuid: gpu.share_gib or 0 for gpu in status.gpus} if status else {}
    fit = (sizes.get(uuid, 0) for position, uuid in enumerate(view.uuids) if view.fit >> position & 1)
    most = None if shares.more is None else len(shares.shared) + shares.more
    return sorted(filter(None, fit), reverse=True)[:most]
