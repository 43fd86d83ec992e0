"""Pods that stand for others. They are not to be placed, and are not counted among the pods that wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.stands_for import StandsFor


@dataclass(frozen=True, slots=True)
class StandIn:
    """One of them, as the watch shows it."""

    stands_for: StandsFor
    namespace: str
    name: str
    gpus: int | None
    created: str | None
    """As the API server writes it."""


class StandIns:
    """By their own UID. One that somebody has bound holds GPUs, and is a pod like any other."""

    def __init__(self) -> None:
        self._by_uid: dict[str, StandIn] = {}
        self._bound: dict[str, StandIn] = {}

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take this for the newest version of a pod; `None`: it is gone."""
        stands_for = StandsFor.read(pod.pod) if pod is not None else None
        self._by_uid.pop(uid, None)
        self._bound.pop(uid, None)
        if pod is None or stands_for is None or pod.ended:
            return
        stand_in = StandIn(stands_for, *pod.key, stands_for.gpus or pod.gpus, pod.pod.metadata.creation_timestamp)
        (self._by_uid if pod.node is None else self._bound)[uid] = stand_in

    def by_pod(self, namespace: str | None = None) -> Mapping[str, StandIn]:
        """Return those in a namespace, or all, by the UID of the pod that each stands for.

        Users can write the annotation in their own namespaces. So the one that counts for a pod may be hidden among all.
        """
        return _by_pod(self._by_uid, namespace)

    def bound_by_pod(self, namespace: str | None = None) -> Mapping[str, StandIn]:
        """Return the same of those that a scheduler which does not ask us has bound."""
        return _by_pod(self._bound, namespace)

    def __contains__(self, uid: object) -> bool:
        return uid in self._by_uid

    def __len__(self) -> int:
        return len(self._by_uid)


def _by_pod(stand_ins: Mapping[str, StandIn], namespace: str | None) -> Mapping[str, StandIn]:
    every = (stand_in for stand_in in stand_ins.values() if namespace is None or stand_in.namespace == namespace)
    return MappingProxyType({stand_in.stands_for.uid: stand_in for stand_in in every})
