"""Reads what a node's GPUs do from its agent, for the page of that node: through the API server, as `kubectl gputopo top` does.

Nothing is read unless a page is looked at, and nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from extender.inspect.samples import GpuSample, samples_of
from extender.kit.bounded import Bounded
from extender.kit.keyed_locks import KeyedLocks
from extender.kit.rate import Rate
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, Send

REMEMBERED_SECONDS: Final = 5.0
"""As often as an open page asks."""
SHOWN_SECONDS: Final = 30.0
"""For which samples are shown while too many agents are asked."""
NODES: Final = 64
"""Whose samples are kept."""
PER_SECOND: Final = 10.0
AT_ONCE: Final = 2
"""Agents that are asked at once, however slow they are. Binds have the other connections to the API server."""
ANSWER_SECONDS: Final = 1.0
"""For which a page waits for an agent. An agent that took longer is asked again after `REMEMBERED_SECONDS`."""
MAX_BYTES: Final = 1 << 20
"""Of an agent's metrics; sixteen GPUs take a tenth of it."""
MAX_GPUS: Final = 64

Samples = Mapping[str, GpuSample]
"""By UUID."""


@dataclass(slots=True)
class AgentSamples:
    """The samples of single nodes."""

    send: Send
    now: Callable[[], float]
    """Returns monotonic seconds."""
    pod_on: Callable[[str], tuple[str, str] | None]
    """Node → namespace and name of the agent's pod there; `None`: none is ready."""
    _kept: Bounded[str, tuple[float, Samples | None]] = field(default_factory=lambda: Bounded(NODES))
    _locks: KeyedLocks = field(default_factory=KeyedLocks)
    _rate: Rate = field(default_factory=lambda: Rate(PER_SECOND, int(2 * PER_SECOND)))
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def of(self, node: str) -> Samples | None:
        """Return the samples of a node's GPUs; `None` where they cannot be read now, and were not a while ago."""
        async with self._locks.plain(node):
            read_at, samples = self._kept.get(node) or (float("-inf"), None)
            if self.now() - read_at < REMEMBERED_SECONDS:
                return samples
            agent = self.pod_on(node)
            if agent is None or self._slots.locked() or not self._rate.take(self.now()):
                return samples if agent and self.now() - read_at < SHOWN_SECONDS else None
            async with self._slots:
                samples = await self._read(*agent)
            self._kept.put(node, (self.now(), samples))
            return samples

    async def _read(self, namespace: str, name: str) -> Samples | None:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}/proxy/metrics"
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status, body = await self.send(Request("GET", path, accept="text/plain"))
        except (Unavailable, TimeoutError):
            return None
        return samples_of(body, MAX_GPUS) or None if status == 200 and len(body) <= MAX_BYTES else None
