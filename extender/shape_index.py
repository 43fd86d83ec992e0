"""Nodes by shape, kept up to date node by node, so that a verdict is made once for all nodes that are alike."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

from extender.node_view import Shape


class ShapeIndex:
    """Shape → names of the nodes that have it, in order."""

    def __init__(self) -> None:
        self._shape_of: dict[str, Shape] = {}
        self._names: dict[Shape, list[str]] = {}

    def put(self, name: str, shape: Shape | None) -> None:
        """File a node under its shape; `None` takes it out."""
        before = self._shape_of.get(name)
        if before == shape:
            return
        if before is not None:
            del self._shape_of[name]
            names = self._names[before]
            del names[bisect_left(names, name)]
            if not names:
                del self._names[before]
        if shape is not None:
            self._shape_of[name] = shape
            insort(self._names.setdefault(shape, []), name)

    def items(self) -> Iterable[tuple[Shape, Sequence[str]]]:
        """Return each shape with its nodes."""
        return self._names.items()

    def __len__(self) -> int:
        return len(self._names)
