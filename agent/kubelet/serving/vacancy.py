"""Waits until nobody computes on GPUs any more, for as long as a container's start may take.

An answer of NVML that does not come in time is none: a driver that hangs keeps no container from starting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from typing import TypeAlias

import structlog

from agent.errors import NvmlUnavailable
from agent.gpus.facts import Answer, GpuProcess, ProcessPort
from agent.gpus.nvml.time_limit import NvmlCalls
from agent.plugin.occupants import occupants

log = structlog.get_logger()

_POLL_SECONDS = 0.25
_ANSWER_SECONDS = 2.0
"""For one reading of NVML, and those before it; NVML takes its time where nobody has it open."""

Told: TypeAlias = Mapping[str, Answer[tuple[GpuProcess, ...]]]


class Vacancy:
    """One node's GPUs; use it on one event loop.

    Args:
        processes: Tells who computes; it may block.
        patience_seconds: How long to wait for processes to end; 0: NVML is not asked.
        ignored: Programs that may compute.

    """

    def __init__(self, processes: ProcessPort, patience_seconds: float, ignored: Collection[str]) -> None:
        self._processes = processes
        self._patience_seconds = patience_seconds
        self._ignored = ignored
        self._nvml = NvmlCalls(_ANSWER_SECONDS)

    async def wait(self, gpus: frozenset[str]) -> str | None:
        """Return `None` as soon as nobody is seen on these GPUs, or who is when patience ends."""
        clock = asyncio.get_running_loop().time
        began, waiting = clock(), False
        while self._patience_seconds and (who := occupants(await self._look(gpus), self._ignored)):
            left = began + self._patience_seconds - clock()
            if left <= 0:
                return who
            if not waiting:
                log.info("a container waits for processes to end", reason=who)
                waiting = True
            await asyncio.sleep(min(_POLL_SECONDS, left))
        return None

    async def _look(self, gpus: frozenset[str]) -> Told:
        try:
            return await self._nvml.call_async(partial(self._processes, gpus))
        except NvmlUnavailable as error:
            log.warning("cannot tell who computes", reason=str(error))
            return {}
