"""The pods that wait for a node, in the order in which kube-scheduler takes them: priority first, then time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from heapq import merge
from itertools import count, islice

from extender.cluster.objects.gpu_pods import GpuPod, priority_of
from extender.cluster.objects.stands_for import is_stand_in

Turn = tuple[int, str, int, str]
"""Minus the priority, when the pod was created, how many were heard of before it, and its UID."""


class Waiting:
    """By scheduler and namespace. Pods with gates, and stand-ins, wait for something else."""

    def __init__(self) -> None:
        self.nominated: dict[str, GpuPod] = {}
        """By UID, those of them that somebody has nominated for a node, or that our queue has sent to one."""
        self._lines: dict[str, dict[str, list[Turn]]] = {}
        """Scheduler → namespace → turns."""
        self._turns: dict[str, tuple[str, str, Turn]] = {}
        """UID → scheduler, namespace and turn."""
        self._arrivals = count()

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take note of the newest version of a pod; `None`: it is gone."""
        if pod is None or not _waits(pod):
            self._leave(uid)
            return
        if pod.pod.status.nominated_node_name or pod.directed_to:
            self.nominated[uid] = pod
        else:
            self.nominated.pop(uid, None)
        if uid not in self._turns:
            scheduler, metadata = pod.pod.spec.scheduler_name or "", pod.pod.metadata
            turn = -priority_of(pod.pod), metadata.creation_timestamp or "", next(self._arrivals), uid
            self._turns[uid] = scheduler, metadata.namespace, turn
            insort(self._lines.setdefault(scheduler, {}).setdefault(metadata.namespace, []), turn)

    def line(self, schedulers: Collection[str], share: int | None = None) -> Iterator[str]:
        """Yield the UIDs of the pods that wait for one of these schedulers, in their order; `share`: of each namespace."""
        lines = (line for name in sorted(schedulers) for line in self._lines.get(name, {}).values())
        return (uid for *_, uid in merge(*(islice(line, share) for line in lines)))

    def of_namespace(self, namespace: str, scheduler: str) -> Iterator[str]:
        """Yield the UIDs of those of one namespace that wait for one scheduler, in their order."""
        return (uid for *_, uid in self._lines.get(scheduler, {}).get(namespace, ()))

    def length(self, schedulers: Collection[str]) -> int:
        """Return how many these are."""
        return sum(len(line) for name in schedulers for line in self._lines.get(name, {}).values())

    def schedulers_but(self, ours: Collection[str]) -> set[str]:
        """Return the schedulers that pods wait for and that are none of these; where `ours` is empty, nobody knows."""
        return self._lines.keys() - {*ours, ""} if ours else set()

    def namespaces(self, schedulers: Collection[str]) -> int:
        """Return in how many namespaces they are; one counts for each of its schedulers."""
        return sum(len(self._lines.get(name, ())) for name in schedulers)

    def _leave(self, uid: str) -> None:
        self.nominated.pop(uid, None)
        found = self._turns.pop(uid, None)
        if found is not None:
            scheduler, namespace, turn = found
            line = self._lines[scheduler][namespace]
            del line[bisect_left(line, turn)]
            if not line:
                del self._lines[scheduler][namespace]
            if not self._lines[scheduler]:
                del self._lines[scheduler]


def _waits(pod: GpuPod) -> bool:
    return pod.is_alive and pod.node is None and not pod.is_gated and not is_stand_in(pod.pod)
