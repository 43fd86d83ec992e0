"""The waiting jobs, those that ask for the same behind one another: a round asks once for each kind and not for each job."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from benchmarks.placement.jobs import Job

_Kind = tuple[object, ...]


class WaitingJobs:
    """Jobs in the order of their numbers, which is that of arrival."""

    def __init__(self) -> None:
        self._queues: dict[_Kind, deque[Job]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Job]:
        return iter(sorted((job for queue in self._queues.values() for job in queue), key=lambda job: job.number))

    def append(self, job: Job) -> None:
        """Let a job wait behind all others."""
        self._queues.setdefault(_kind(job), deque()).append(job)

    def remove(self, job: Job) -> None:
        """Let a job wait no more, whoever is before it."""
        kind = _kind(job)
        queue = self._queues[kind]
        queue.remove(job)
        if not queue:
            del self._queues[kind]

    def serve(self, start: Callable[[Job], bool], may_fit: Callable[[Job], bool], *, in_order: bool) -> None:
        """Offer each job a start, oldest first; those that `start` takes stop waiting.

        What one job could not get, no later job of its kind can get in this round. Where there is no room before it, its
        kind is not tried at all. `in_order`: nor can any other job.
        """
        order: list[tuple[int, int, _Kind]] = [
            (queue[0].number, place, kind)
            for place, (kind, queue) in enumerate(self._queues.items())
            if in_order or may_fit(queue[0])
        ]
        heapify(order)
        while order:
            _, place, kind = heappop(order)
            queue = self._queues[kind]
            if not start(queue[0]):
                if in_order:
                    return
                continue
            queue.popleft()
            if queue:
                heappush(order, (queue[0].number, place, kind))
            else:
                del self._queues[kind]


def _kind(job: Job) -> _Kind:
    return job.pods, job.communication, job.minimal_utility
