"""How many pods have ended of late and given back what they held: from that follows how long a pod without room may wait.

Pods that were evicted do not count: nobody knows when the next one would have gone by itself.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod, why_evicted
from topology.request.gpu_request import Size, size_of

SPAN_SECONDS: Final = 3600.0
"""What is older does not count."""
BUCKET_SECONDS: Final = 60.0
MOST: Final = 1024
"""Of GPUs, slices and GiB. What is more counts alike: tenants choose it."""
_NONE: Final[Size] = (0, 0, 0)


class Departures:
    """Ends of bound pods in the last hour, by the size of what they held."""

    def __init__(self) -> None:
        self._held: dict[str, Size] = {}
        """By UID; of pods that are evicted `_NONE`."""
        self._news = Counter[Size]()
        """Size → pods that have ended since the last call of `listen`."""
        self._buckets: deque[tuple[float, Counter[Size]]] = deque()
        """When each began, in monotonic seconds, and what it has."""
        self._ended = Counter[Size]()
        """What all buckets have."""
        self._since: float | None = None

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take note of the newest version of a pod; `None`: it is gone."""
        before = self._held.pop(uid, _NONE)
        if pod is not None and pod.node is not None and not pod.ended:
            self._held[uid] = _NONE if why_evicted(pod.pod) else _size(pod)
        elif before != _NONE:
            self._news[before] += 1

    def listen(self, now: float) -> None:
        """Take `now` (monotonic seconds) for the moment when pods ended since the last call."""
        if self._since is None:  # what the first list shows has ended at any time
            self._since = now
            self._news.clear()
        if not self._buckets or now - self._buckets[-1][0] >= BUCKET_SECONDS:
            self._buckets.append((now, Counter()))
        self._buckets[-1][1].update(self._news)
        self._ended.update(self._news)
        self._news.clear()
        while self._buckets and now - self._buckets[0][0] > SPAN_SECONDS:
            _, older = self._buckets.popleft()
            self._ended -= older

    def expected_wait_seconds(self, size: Size, now: float, usual_seconds: float) -> float:
        """Return how long it takes until a pod ends that holds at least as much; for MIG slices, of slices.

        Before anything is measured that is `usual_seconds`, which count as one more departure after that time.
        """
        since = now if self._since is None else self._since
        seconds = min(now - since, SPAN_SECONDS)
        least, has_slices = _capped(size), _has_slices(size)
        departures = sum(
            count for held, count in self._ended.items() if held >= least and _has_slices(held) == has_slices
        )
        return (seconds + usual_seconds) / (departures + 1)


def _size(pod: GpuPod) -> Size:
    return _capped(size_of(pod.gpus or 0, pod.profile, pod.shares))


def _capped(size: Size) -> Size:
    gpus, slices, gib = size
    return min(gpus, MOST), min(slices, MOST), min(gib, MOST)


def _has_slices(size: Size) -> bool:
    _, slices, _ = size
    return bool(slices)
