"""What kube-scheduler does with waiting pods, over and over: filter and prioritize one after the other, bind in the background.

Each call goes to a replica of its own choice, as behind a Service; a call that fails puts the pod back, and it is tried again a
little later, faster than the real one would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import aiohttp

from benchmarks.processes.client import Json
from tests.manifests.rendered import SCHEDULER_NAME
from tests.process.backends import UNAVAILABLE, Backend, names
from tests.process.replica import Replica

BINDS_AT_ONCE = 16
_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.1, 1.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One bind."""

    uid: str
    node: str
    replica: str
    error: str | None
    """Empty: bound; `None`: nobody answered."""
    seconds: float


class Scheduler:
    """Schedules all pods of our scheduler's name until it is cancelled."""

    def __init__(self, backend: Backend, replicas: Sequence[Replica], seed: int = 0) -> None:
        self.attempts: list[Attempt] = []
        self._backend = backend
        self._replicas = replicas
        self._random = Random(seed)
        self._slots = asyncio.Semaphore(BINDS_AT_ONCE)
        self._under_way: set[str] = set()
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}

    @property
    def bound(self) -> list[Attempt]:
        """The attempts that went well."""
        return [attempt for attempt in self.attempts if attempt.error == ""]

    @property
    def pods_bound(self) -> int:
        """How many pods heard so."""
        return len({attempt.uid for attempt in self.bound})

    @property
    def is_idle(self) -> bool:
        """Whether no bind is under way."""
        return not self._under_way

    async def run(self) -> None:
        """Schedule for ever."""
        clock = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as binds:
            while True:
                try:
                    nodes, pods = await self._backend.objects()
                except UNAVAILABLE:
                    nodes, pods = [], []
                for pod in filter(_waits, pods):
                    uid = pod["metadata"]["uid"]
                    if uid in self._under_way or clock() < self._not_before.get(uid, 0):
                        continue
                    if node := await self._choose(pod, names(nodes)):
                        await self._slots.acquire()
                        self._under_way.add(uid)
                        binds.create_task(self._bind(pod, node))
                    else:
                        self._put_back(uid)
                await asyncio.sleep(0.02)

    async def _choose(self, pod: Json, nodes: list[str]) -> str | None:
        """Return the best node, `None` when there is none or the extender fails."""
        answer = await self._ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        fitting: list[str] = (answer or {}).get("NodeNames") or []
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        scores = await self._ask("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": fitting})
        if scores is None:
            return None
        best = max(scores, key=lambda entry: entry["Score"], default={"Host": fitting[0]})
        return str(best["Host"])

    async def _ask(self, verb: str, body: Json) -> Any:
        try:
            status, answer = await self._replica().post(verb, body)
        except (aiohttp.ClientError, TimeoutError):
            return None
        return answer if status == 200 else None

    async def _bind(self, pod: Json, node: str) -> None:
        uid, replica, clock = pod["metadata"]["uid"], self._replica(), asyncio.get_running_loop()
        began = clock.time()
        try:
            error = await replica.bind(pod, node)
        finally:
            self._slots.release()
            self._under_way.discard(uid)
        self.attempts.append(Attempt(uid, node, replica.name, error, clock.time() - began))
        if error != "":
            self._put_back(uid)

    def _replica(self) -> Replica:
        serving = [replica for replica in self._replicas if replica.in_service]
        return self._random.choice(serving or list(self._replicas))

    def _put_back(self, uid: str) -> None:
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        pause = min(_MAX_BACKOFF_SECONDS, _BACKOFF_SECONDS * 2.0 ** min(failures - 1, 10))
        self._not_before[uid] = asyncio.get_running_loop().time() + pause


def _waits(pod: Json) -> bool:
    spec, status = pod["spec"], pod["status"]
    return (
        spec.get("schedulerName") == SCHEDULER_NAME
        and not spec.get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
        and status.get("phase") == "Pending"
    )
