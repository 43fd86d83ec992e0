"""A burst of pods of the usual sizes, in rounds of several cases: when each pod was created, and when it was bound."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from benchmarks.performance.verbs import PODS, create
from benchmarks.processes.client import ApiClient, Json, for_all
from benchmarks.processes.process import Process
from benchmarks.simulated.fleet import POD_SIZES, gpu_pod

Case = TypeVar("Case")

STALLED_AFTER_SECONDS = 60.0
CREATED_AT_ONCE = 24


class Stalled(Exception):
    """The scheduler bound nothing for a while; the text says how far it came, and ends with its last words."""


def alternating(cases: Sequence[Case], rounds: int, name: Callable[[Case], str]) -> Iterator[tuple[int, Case]]:
    """Yield the number of each round with each case, and print on stderr where this stands.

    Back and forth, so that a machine that slows down meanwhile favours no case.
    """
    for number in range(rounds):
        for case in cases if number % 2 == 0 else reversed(cases):
            print(f"round {number + 1} of {rounds}: {name(case)}", file=sys.stderr, flush=True)
            yield number, case


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Return the median of the ratios of all rounds, the lowest and the highest one."""
    return {
        "median": round(statistics.median(ratios), 3),
        "lowest": round(min(ratios), 3),
        "highest": round(max(ratios), 3),
    }


async def create_pods(
    api: ApiClient, pods: int, made_by: Callable[..., Json] = gpu_pod, per_second: float = 0.0, **spec: Any
) -> dict[str, float]:
    """Return when the request for each was sent. A pod may be bound before its answer arrives.

    `made_by` makes a pod from its name, its number of GPUs and `spec`, which adds to that of each. With `per_second` they come
    in equal intervals.
    """
    created, began = dict[str, float](), time.perf_counter()

    async def create_one(number: int) -> None:
        if per_second:
            await asyncio.sleep(began + number / per_second - time.perf_counter())
        created[f"pod-{number}"] = time.perf_counter()
        await create(api, made_by(f"pod-{number}", POD_SIZES[number % len(POD_SIZES)], **spec))

    await for_all(range(pods), create_one, CREATED_AT_ONCE)
    return created


async def until_bound(
    api: ApiClient, pods: int, scheduler: Process, stalled_after_seconds: float = STALLED_AFTER_SECONDS
) -> dict[str, float]:
    """Return when each pod was bound, as watches tell of it that begin with those that there are; a slow watcher is cut off."""
    bound: dict[str, float] = {}
    try:
        while len(bound) < pods:
            # No others are looked at: what that takes is lost to those who are measured.
            events = api.watch(PODS, fieldSelector="spec.nodeName!=")
            try:
                while len(bound) < pods:
                    async with asyncio.timeout(stalled_after_seconds):
                        kind, pod = await anext(events)
                    if kind == "ERROR":  # the server has forgotten the changes since the last event
                        break
                    bound.setdefault(pod["metadata"]["name"], time.perf_counter())
            except StopAsyncIteration:
                continue
            finally:
                await events.aclose()
    except TimeoutError as silence:
        said = scheduler.log_tail()
        raise Stalled(f"{len(bound)} of {pods} pods are bound, and nothing happens any more:\n{said}") from silence
    return bound
