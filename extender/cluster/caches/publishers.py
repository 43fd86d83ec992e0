"""Which node may speak for a GPU: the first one that published its UUID, until it no longer does.

A UUID is unique in the world, so of two nodes with one GPU at least one is wrong, forged or out of date. The later one is
refused whole, and the first is none the worse for it.
"""

from __future__ import annotations

from collections.abc import Iterable


class Publishers:
    """All nodes by the UUIDs that they publish, first come first."""

    def __init__(self) -> None:
        self._nodes: dict[str, list[str]] = {}
        self._uuids: dict[str, tuple[str, ...]] = {}

    def publish(self, node: str, uuids: tuple[str, ...]) -> set[str]:
        """Take this for all that a node publishes; returns the other nodes for which that may change something."""
        before = self._uuids.get(node, ())
        if before == uuids:
            return set()
        affected = set(self._withdraw(node, set(before).difference(uuids)))
        for uuid in uuids:
            nodes = self._nodes.setdefault(uuid, [])
            if node not in nodes:
                nodes.append(node)
        if uuids:
            self._uuids[node] = uuids
        else:
            self._uuids.pop(node, None)
        return affected

    def is_duplicate(self, node: str) -> bool:
        """Whether another node was first with one of the node's GPUs."""
        return any(self._nodes[uuid][0] != node for uuid in self._uuids.get(node, ()))

    def _withdraw(self, node: str, uuids: Iterable[str]) -> Iterable[str]:
        for uuid in uuids:
            nodes = self._nodes[uuid]
            nodes.remove(node)
            yield from nodes
            if not nodes:
                del self._nodes[uuid]
