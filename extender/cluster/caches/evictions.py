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

    def __init__(self, peers: Callable[[str], Iterable[GpuPod]]) -> None:
        """`peers` returns the other pods of a pod's group, which may be thousands."""
        self._peers = peers
        self._known: set[str] = set()
        self._news: list[Evicted] = []

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take this for the newest version of a pod; `None`: it is gone."""
        if pod is None:
            self._known.discard(uid)
            return
        if uid in self._known or pod.node is None or not (why := why_evicted(pod.pod)) or has_ended(pod.pod):
            return
        self._known.add(uid)
        if others := tuple(other for other in self._peers(uid) if other.node and not other.ended):
            self._news.append(Evicted(pod, why, others))

    def news(self) -> list[Evicted]:
        """Return who has come since the last call."""
        news, self._news = self._news, []
        return news
