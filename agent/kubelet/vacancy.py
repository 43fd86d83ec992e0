"""Waits until nobody computes on GPUs any more, for as long as a container's start may take.

NVML is asked on threads of their own, and an answer that does not come in time is none: a driver that hangs keeps no container
from starting, and holds up no more than these threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog

from agent.errors import NvmlUnavailable
from agent.facts import Answer, Process, ProcessPort
from agent.plugin.vacancy import occupants

log = structlog.get_logger()

_POLL_SECONDS = 0.25
_ANSWER_SECONDS = 2.0
"""For one look; NVML takes its time where nobody has it open."""
_THREADS = 2
"""Looks that may hang at once; while they do, others wait for their turn, and then go without an answer."""


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
        self._asks = patience_seconds > 0
        self._ignored = ignored
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="processes")

    async def wait(self, gpus: frozenset[str]) -> str | None:
        """Return `None` as soon as nobody is seen on these GPUs, or who is when patience ends."""
        clock = asyncio.get_running_loop().time
        began, waiting = clock(), False
        while self._asks and (who := occupants(await self._look(gpus), self._ignored)):
            left = began + self._patience_seconds - clock()
            if left <= 0:
                return who
            if not waiting:
                log.info("a container waits for processes to end", reason=who)
                waiting = True
            await asyncio.sleep(min(_POLL_SECONDS, left))
        return None

    def close(self) -> None:
        """Look no more: whoever waits yet is not listened to any longer, and what hangs is left to itself."""
        self._asks = False
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _look(self, gpus: frozenset[str]) -> Mapping[str, Answer[tuple[Process, ...]]]:
        looking = asyncio.get_running_loop().run_in_executor(self._threads, self._processes, gpus)
        try:
            return await asyncio.wait_for(looking, _ANSWER_SECONDS)
        except (TimeoutError, NvmlUnavailable) as error:
            log.warning("cannot tell who computes", reason=str(error) or "too slow")
            return {}
