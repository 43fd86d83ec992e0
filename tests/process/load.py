"""Pods that keep coming, run and end, for tests in which something happens meanwhile."""

from __future__ import annotations

import asyncio
from random import Random

from benchmarks.client import Json
from tests.cluster.gpu_cluster import wants
from tests.process.backends import UNAVAILABLE
from tests.process.world import World, finished_at_once

SIZES = (1, 1, 1, 2, 4)
ENDING_RATIO = 0.8
"""Of the pods that end at once; the others run until they are deleted."""
DELETED_AT_ONCE = 3


async def churn(world: World, there: int, prefix: str = "load") -> None:
    """Keep `there` pods in being until cancelled: some end, some are deleted while they run, and others follow."""
    chance, number = Random(1), 0
    while True:
        try:
            _, pods = await world.backend.objects()
            ended = [pod for pod in pods if pod["status"].get("phase") in ("Succeeded", "Failed")]
            running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
            doomed = chance.sample(running, min(DELETED_AT_ONCE, len(running)))
            await asyncio.gather(*(world.delete(pod["metadata"]["name"]) for pod in (*ended, *doomed)))
            missing = max(0, there - len(pods) + len(ended))
            await world.submit(*(_pod(chance, f"{prefix}-{number + each}") for each in range(missing)))
            number += missing
        except UNAVAILABLE:
            number += there  # nobody knows which of the names are taken
        await asyncio.sleep(0.1)


def _pod(chance: Random, name: str) -> Json:
    pod = wants(name, chance.choice(SIZES))
    return finished_at_once(pod) if chance.random() < ENDING_RATIO else pod
