"""Lists of pods like some that Alibaba made of its `default`, drawn from a list that is there.

Of the published lists the trace's page says that they are sampled from `default` so that some kind of pod is more of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from random import Random

from benchmarks.placement.jobs import PodSize
from benchmarks.placement.traces.files import BadTrace
from topology.value.fragmentation import WHOLE_GPU_MILLI

_GPUSHARE = re.compile(r"gpushare(100|[1-9]?[0-9])")


@cache
def like(pods: tuple[PodSize, ...], mix: str) -> tuple[PodSize, ...]:
    """Return pods of the mix, always the same; raises `BadTrace`.

    `gpushare20`: shares of GPUs are 20 % of the GPUs asked for. Pods without GPUs stay, and so does the number of all pods, as
    in the lists `gpushare40` and `gpushare100` that were published.
    """
    found = _GPUSHARE.fullmatch(mix)
    if found is None:
        raise BadTrace(f"no pods can be drawn for {mix!r}; gpushare0 to gpushare100 can")
    part = int(found[1]) / 100
    shares, wholes = [pod for pod in pods if pod.shares], [pod for pod in pods if pod.gpus and not pod.shares]
    if (part > 0 and not shares) or (part < 1 and not wholes):
        raise BadTrace(f"no pods can be drawn for {mix!r} from a list without such")
    others = tuple(pod for pod in pods if not pod.gpus)
    return (*others, *_drawn(shares, wholes, part, len(pods) - len(others), Random(mix)))  # noqa: S311 - a simulation


def _drawn(
    shares: Sequence[PodSize], wholes: Sequence[PodSize], part: float, count: int, random: Random
) -> list[PodSize]:
    """Return so many pods; each time one of those that are too few by what they ask for."""
    found: list[PodSize] = []
    shared_milli = asked_milli = 0
    while len(found) < count:
        pod = random.choice(shares if shared_milli < part * (asked_milli or WHOLE_GPU_MILLI) else wholes)
        found.append(pod)
        asked_milli += pod.gpus * pod.gpu_milli
        shared_milli += pod.gpu_milli if pod.shares else 0
    return found
