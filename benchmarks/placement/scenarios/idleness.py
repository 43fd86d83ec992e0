"""GPUs that idle though somebody waits who asks for no more than are idle: what a policy's fragments cost the cluster.

Unlike a mean over jobs this does not depend on whose turn it was: it is capacity that is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import nan
from operator import itemgetter

from benchmarks.placement.engine import RunTime, Started

_Change = tuple[float, int, int, int]
"""Time; GPUs that become free, or are taken where negative; the size of a job; by how many more such jobs wait."""


def idle_while_wanted_pct(started: Iterable[Started], gpus: int, run_time: RunTime) -> float:
    """Return the GPU time lost so in percent of all, up to the last arrival; n log n in the jobs, NaN without any."""
    changes = sorted((change for event in started for change in _changes(event, run_time)), key=itemgetter(0))
    if not changes:
        return nan
    waiting: Counter[int] = Counter()
    begin_s, end_s = changes[0][0], max(time_s for time_s, _, _, more in changes if more > 0)
    free, lost_gpu_s = gpus, 0.0
    for (time_s, freed, size, more), (next_s, *_) in pairwise(changes):
        free += freed
        waiting[size] += more
        if waiting[size] == 0:
            del waiting[size]
        if waiting and min(waiting) <= free:
            lost_gpu_s += free * max(0.0, min(next_s, end_s) - time_s)
    return 100 * lost_gpu_s / (gpus * (end_s - begin_s)) if end_s > begin_s else 0.0


def _changes(event: Started, run_time: RunTime) -> Iterator[_Change]:
    gpus = event.job.gpus
    yield event.job.arrival_s, 0, gpus, 1
    yield event.time_s, -gpus, gpus, -1
    yield event.time_s + run_time(event.job, event.placed), gpus, gpus, 0
