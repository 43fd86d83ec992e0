"""Pods that keep coming, run and end, for tests in which something happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count, islice
from random import Random
from typing import TypeVar

from benchmarks.processes.client import Json
from benchmarks.simulated.pod_life import EXIT_CODE, has_ended
from tests.cluster.gpu_cluster import wants
from tests.process.backends import UNAVAILABLE
from tests.process.world import World, finished_at_once

SIZES = (1, 1, 1, 2, 4)
ENDING_RATIO = 0.8
"""Of the pods that end at once; the others run until they are deleted."""
DELETED_AT_ONCE = 3

Argument = TypeVar("Argument")


@asynccontextmanager
async def load(world: World, there: int) -> AsyncIterator[None]:
    """Keep `there` pods in being for the length of a block: some end, some are deleted while they run, others follow.

    Calls that fail cost only themselves, as of a server that is away; any other end of the load is the test's. After the block
    all pods end that are there, or those that run could keep others waiting for ever.
    """
    async with asyncio.TaskGroup() as tasks:
        feeding = tasks.create_task(_feed(world, there))
        yield
        feeding.cancel()
    with suppress(*UNAVAILABLE):
        _, pods = await world.backend.objects()
        await asyncio.gather(*(_try(partial(_let_end, world), pod) for pod in pods))


async def _feed(world: World, there: int) -> None:
    chance, numbers = Random(1), count()
    while True:
        with suppress(*UNAVAILABLE):
            _, pods = await world.backend.objects()
            ended = [pod for pod in pods if has_ended(pod)]
            running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
            doomed = chance.sample(running, min(DELETED_AT_ONCE, len(running)))
            await asyncio.gather(*(_try(world.delete, pod["metadata"]["name"]) for pod in (*ended, *doomed)))
            missing = max(0, there - len(pods) + len(ended))
            more = [_pod(chance, f"load-{number}") for number in islice(numbers, missing)]
            await asyncio.gather(*(_try(world.submit, pod) for pod in more))
        await asyncio.sleep(0.1)


async def _let_end(world: World, pod: Json) -> None:
    await world.annotate_pod(pod["metadata"]["name"], {EXIT_CODE: "0"})


async def _try(call: Callable[[Argument], Awaitable[object]], argument: Argument) -> None:
    with suppress(*UNAVAILABLE):  # made here: one that a cancelled task has not begun to await would be complained of
        await call(argument)


def _pod(chance: Random, name: str) -> Json:
    pod = wants(name, chance.choice(SIZES))
    return finished_at_once(pod) if chance.random() < ENDING_RATIO else pod
