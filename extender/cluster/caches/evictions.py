"""Pods that have to go, by whomever: a drain, a descheduler, preemption, a taint; the rest of their group is to hear of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from extender.cluster.objects.gpu_pods import GpuPod, has_ended, why_evicted


@dataclass(frozen=True, slots=True)
class Evicted:
    """One of them, and the others of its group that are on a node."""

    pod: GpuPod
    why: str
    """As who evicted it has put it: `EvictionByEvictionAPI`."""
    others: tuple[GpuPod, ...]


class Evictions:
    """Takes note of each once, when its version says so; it may be gone a moment later."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._news: list[Evicted] = []

    def take(self, pod: GpuPod, group: Callable[[str], Iterable[GpuPod]]) -> None:
        """Take in a version of a pod; `group` returns the other pods of its group, which may be thousands."""
        why = why_evicted(pod.pod)
        if not why or pod.uid in self._known or pod.node is None or has_ended(pod.pod):
            return
        self._known.add(pod.uid)
        if others := tuple(other for other in group(pod.uid) if other.node and not other.ended):
            self._news.append(Evicted(pod, why, others))

    def forget(self, uid: str) -> None:
        """Take note that a pod is gone."""
        self._known.discard(uid)

    def news(self) -> list[Evicted]:
        """Return who has come since the last call."""
        news, self._news = self._news, []
        return news
