"""Keeps the limits of one node's shares: set before a container starts, kept while it runs, taken back when its share goes.

The pod's cgroup bounds all of its containers, and is there before any of them. What a container reads as its GPU's memory is the
limit of its own cgroup, which is there a moment after its start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import structlog

from agent.errors import NvmlUnavailable
from agent.gpus.access import CLOSED, PAUSED
from agent.gpus.facts import Answer, Known, Missing
from agent.gpus.memory_limits import Place, ReadLimits, SetLimits, Standing
from agent.gpus.patience import aside
from agent.limits import mps
from agent.limits.cgroups import PodCgroups
from agent.limits.level import NOT_LOOKED, Ground, Level, decide, refused
from agent.limits.mps import Mount, MpsDaemons
from agent.limits.share import Share, bytes_by_gpu
from topology.node.status import Limits

T = TypeVar("T")

log = structlog.get_logger()

_ANSWER_SECONDS = 5.0
"""For one visit to NVML, and those before it."""
_AGAIN_SECONDS = 30.0
"""After which all limits are set again: a driver that was loaded anew knows none of them."""


@dataclass(frozen=True, slots=True)
class Means:
    """What the node has to hold containers with."""

    set_limits: SetLimits
    read_limits: ReadLimits
    cgroups: PodCgroups
    daemons: MpsDaemons | None
    """`None`: MPS is off."""


class Limiter:
    """One node's; use it on one event loop.

    Args:
        means: To hold containers with.
        required: Whether a container that cannot be held to its share may not start.
        clock: Monotonic seconds.

    """

    def __init__(self, means: Means, *, required: bool, clock: Callable[[], float]) -> None:
        self._means = means
        self._required = required
        self._clock = clock
        self._turn = asyncio.Lock()
        self._asking: Future[Any] | None = None
        self._gpus: frozenset[str] = frozenset()
        self._pipes: Mapping[str, Path] = {}
        self._refusals: dict[Place, str] = {}
        self._set: dict[Place, int] = {}
        self._set_at = clock()
        self._swept = False
        self.level = NOT_LOOKED
        """What holds containers now, as of the last look."""

    @property
    def held_back(self) -> str:
        """Why no container with a share may start; empty where they may."""
        return "; ".join(self.level.reasons) if self._required and self.level.limits is Limits.NONE else ""

    async def look(self, gpus: Collection[str], driver: str | None = None, *, mig: bool = False) -> Level:
        """Find out what holds containers on GPUs that may be shared; never raises."""
        self._gpus = frozenset(gpus)
        try:
            ground = await self._nvml(partial(self._ground, driver, mig))
        except TimeoutError:
            ground = Ground(self._gpus, driver, refusals=dict.fromkeys(gpus, "TIMEOUT"), daemons=frozenset(self._pipes))
        except NvmlUnavailable as error:
            if error.code in (PAUSED, CLOSED) and self.level is not NOT_LOOKED:
                return self.level  # a driver that is left alone takes what it took
            ground = Ground(self._gpus, driver, refusals=dict.fromkeys(gpus, error.code))
        before, self.level = self.level, decide(ground)
        if self.level != before:
            log.info("limits on shares", limits=self.level.limits, reasons="; ".join(self.level.reasons))
        return self.level

    def environment(self, share: Share) -> Mapping[str, str]:
        """Return what the container with this share is told by its environment."""
        return mps.environment(share) if share.gpu in self._pipes else {}

    def mounts(self, share: Share) -> tuple[Mount, ...]:
        """Return the folders of the host that the container with this share needs."""
        daemons, pipe = self._means.daemons, self._pipes.get(share.gpu)
        return daemons.mounts(pipe) if daemons and pipe else ()

    async def before_start(self, shares: Collection[Share]) -> str | None:
        """Hold a pod, of which these are all shares, to them; return why its container has to wait, or `None`."""
        if self.level.limits is not Limits.CGROUP:
            return self.held_back or None
        pod = self._means.cgroups.of_pod(next(iter(shares)).uid) if shares else None
        if pod is None:
            reason = "its pod has no cgroup that the agent sees"
        else:
            places = {Place(gpu, str(pod)): limit for gpu, limit in bytes_by_gpu(shares).items()}
            reason = await self._hold(places)
        if reason:
            log.warning("a share is not held", reason=reason, required=self._required)
        return reason if reason and self._required else None

    async def follow(self, shares: Collection[Share]) -> None:
        """Have exactly these limits stand: all shares of the node, by a ledger that is known; never raises."""
        if self.level.limits is not Limits.CGROUP:
            return
        now = self._clock()
        if now - self._set_at >= _AGAIN_SECONDS:
            self._set, self._set_at = {}, now
            self._swept = False
        wanted = await asyncio.to_thread(self._wanted, tuple(shares))
        changes: dict[Place, int | None] = {
            place: limit for place, limit in wanted.items() if self._set.get(place) != limit
        }
        gone = self._set.keys() - wanted.keys()
        changes |= {place: None for place in gone if Path(place.cgroup).is_dir()}
        self._set = {place: limit for place, limit in self._set.items() if place not in gone}
        self._refusals = {place: code for place, code in self._refusals.items() if place in wanted}
        if not self._swept:
            changes |= dict.fromkeys(await self._leftovers(wanted.keys()))
        if changes:
            await self._hold(changes)

    def _ground(self, driver: str | None, mig: bool) -> Ground:
        """Look; a limit is only known to be taken once one was, so that of all pods, who have none, is cleared."""
        cgroups, daemons, gpus = self._means.cgroups, self._means.daemons, self._gpus
        self._pipes = daemons.look(gpus) if daemons else {}
        top = cgroups.all_pods() if cgroups.is_unified else None
        ground = Ground(
            gpus, driver, cgroups.is_unified, top is not None, mig, mps=bool(daemons), daemons=frozenset(self._pipes)
        )
        if decide(ground).limits is not Limits.CGROUP:
            return ground
        standing = {place: code for place, code in self._refusals.items() if place.gpu in gpus}
        answers = self._means.set_limits({Place(gpu, str(top)): None for gpu in gpus})
        codes = {place.gpu: answer.code for place, answer in answers.items() if isinstance(answer, Missing)}
        refusals = {place.gpu: code for place, code in standing.items()} | codes
        return Ground(gpus, driver, mig=mig, refusals=refusals, mps=bool(daemons), daemons=frozenset(self._pipes))

    def _wanted(self, shares: Sequence[Share]) -> dict[Place, int]:
        """Return the limits of pods and containers, where these have cgroups."""
        wanted: dict[Place, int] = {}
        cgroups = self._means.cgroups
        for uid, of_pod in groupby(sorted(shares, key=lambda share: share.uid), lambda share: share.uid):
            limits = bytes_by_gpu(of_pod)
            if pod := cgroups.of_pod(uid):
                folders = (pod, *cgroups.of_containers(pod))
                wanted |= {Place(gpu, str(each)): limit for gpu, limit in limits.items() for each in folders}
        return wanted

    async def _leftovers(self, wanted: Collection[Place]) -> list[Place]:
        """Return the places with a limit of which no share is left, as after a start of the agent."""
        pods = await asyncio.to_thread(lambda: [*self._means.cgroups.pods()])
        places = [place for place in (Place(gpu, str(pod)) for pod in pods for gpu in self._gpus) if place not in wanted]
        standing = await self._told(places)
        self._swept = standing is not None
        return [place for place, answer in (standing or {}).items() if isinstance(answer, Known) and answer.value.hard_bytes]

    async def _told(self, places: Collection[Place]) -> Mapping[Place, Answer[Standing]] | None:
        try:
            return await self._nvml(lambda: self._means.read_limits(places)) if places else {}
        except (TimeoutError, NvmlUnavailable):
            return None

    async def _hold(self, limits: Mapping[Place, int | None]) -> str:
        """Set limits and compare what is read back; return why not all of them hold, or nothing."""
        try:
            answers = await self._nvml(lambda: self._means.set_limits(limits))
        except TimeoutError:
            answers = dict.fromkeys(limits, Missing_of("TIMEOUT"))
        except NvmlUnavailable as error:
            answers = dict.fromkeys(limits, Missing_of(error.code))
        return ""

    async def _nvml(self, call: Callable[[], T]) -> T:
        """Call on a thread of its own, one at a time; raises `TimeoutError`, and then the call is left to itself."""
        async with asyncio.timeout(_ANSWER_SECONDS), self._turn:
            if self._asking and not self._asking.done():
                await asyncio.wait([asyncio.wrap_future(self._asking)])
            self._asking = aside(call)
            answer: T = await asyncio.wrap_future(self._asking)
            return answer
