"""Which candidates a pod has been offered, so that it gets others when something after us refused all of those.

Filter passes on a few of the nodes that fit. If another extender refuses every one of them, kube-scheduler asks us again, and
without a memory we would offer the same ones for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from extender.cluster.candidates.shape_index import Bucket, ShapeIndex
from extender.kit.fair_table import FairTable

LIMIT = 10_000
"""Pods, shared between namespaces; a forgotten one merely starts again with the best candidates."""


class Offers:
    """Per pod (UID): the candidates of its last filter calls, each in the bucket where it was then."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._offers = FairTable[str, dict[str, Bucket]](limit)

    def refused(self, uid: str, shapes: ShapeIndex) -> frozenset[str]:
        """Return the nodes that the pod was offered and came back from; one whose GPUs have changed is worth another try.

        CPU alone is none: other pods come and go all the time, and the other nodes would never have their turn.
        """
        offered = self._offers.get(uid) or {}
        bucket_of = shapes.bucket_of
        return frozenset(name for name, bucket in offered.items() if _are_alike(bucket, bucket_of(name)))

    def add(self, uid: str, names: Iterable[str], shapes: ShapeIndex, namespace: str = "") -> None:
        """Remember a further offer; `namespace` is the pod's."""
        offered = self._offers.get(uid) or {}
        offered.update((name, bucket) for name in names if (bucket := shapes.bucket_of(name)))
        self._offers.put(uid, namespace, offered)

    def forget(self, uid: str) -> None:
        """Start again: somebody took up an offer, or nothing is left to offer."""
        self._offers.pop(uid)


def _are_alike(before: Bucket, now: Bucket | None) -> bool:
    """Whether nothing has changed but CPU; nearly always nothing has."""
    if before is now or now is None:
        return before is now
    return replace(before.shape, cpu_milli=None) == replace(now.shape, cpu_milli=None)
