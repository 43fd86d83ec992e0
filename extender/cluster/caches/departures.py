"""How many pods have ended of late and given their GPUs back: from that follows how long a pod without room may wait.

Pods that were evicted do not count: nobody knows when the next one would have gone by itself.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod, why_evicted

SPAN_SECONDS: Final = 3600.0
"""What is older does not count."""
BUCKET_SECONDS: Final = 60.0


class Departures:
    """Ends of bound pods with whole GPUs in the last hour, by their GPUs."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}
        """UID → GPUs; 0 of pods that are evicted."""
        self._news = Counter[int]()
        """GPUs → pods that have ended since the last call of `listen`."""
        self._buckets: deque[tuple[float, Counter[int]]] = deque()
        """When each began, in monotonic seconds, and what it has."""
        self._since: float | None = None

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take note of the newest version of a pod; `None`: it is gone."""
        before = self._held.pop(uid, 0)
        if pod is not None and pod.node is not None and not pod.ended:
            gpus = 0 if pod.profile else pod.gpus or 0
            self._held[uid] = 0 if why_evicted(pod.pod) else gpus
        elif before:
            self._news[before] += 1

    def listen(self, now: float) -> None:
        """Take `now` (monotonic seconds) for the moment when pods ended since the last call."""
        if self._since is None:  # what the first list shows has ended at any time
            self._since = now
            self._news.clear()
        if not self._buckets or now - self._buckets[-1][0] >= BUCKET_SECONDS:
            self._buckets.append((now, Counter()))
        self._buckets[-1][1].update(self._news)
        self._news.clear()
        while self._buckets and now - self._buckets[0][0] > SPAN_SECONDS:
            self._buckets.popleft()

    def expected_wait_seconds(self, gpus: int, now: float, usual_seconds: float) -> float:
        """Return how long it takes until a pod with at least so many GPUs ends.

        Before anything is measured that is `usual_seconds`, which count as one more departure after that time.
        """
        since = now if self._since is None else self._since
        seconds = min(now - since, SPAN_SECONDS)
        departures = sum(count for _, bucket in self._buckets for held, count in bucket.items() if held >= gpus)
        return (seconds + usual_seconds) / (departures + 1)
