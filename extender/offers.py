"""Which candidates a pod has been offered, so that it gets others when something after us refused all of those.

Filter passes on a few of the nodes that fit. If another extender refuses every one of them, kube-scheduler asks us again, and
without a memory we would offer the same ones for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from extender.node_view import Shape

LIMIT = 10_000
"""Pods; a forgotten one merely starts again with the best candidates."""


class Offers:
    """Per pod (UID): the candidates of its last filter calls, each with the shape that its node had then."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._offers: OrderedDict[str, dict[str, Shape]] = OrderedDict()

    def refused(self, uid: str) -> Mapping[str, Shape]:
        """Return what the pod was offered and came back from; it is worth another try once its shape has changed."""
        return self._offers.get(uid, {})

    def add(self, uid: str, offered: Iterable[tuple[str, Shape]]) -> None:
        """Remember a further offer."""
        self._offers.setdefault(uid, {}).update(offered)
        self._offers.move_to_end(uid)
        if len(self._offers) > self._limit:
            self._offers.popitem(last=False)

    def forget(self, uid: str) -> None:
        """Start again: somebody took up an offer, or nothing is left to offer."""
        self._offers.pop(uid, None)
