"""Keeps the limits of one node's shares: set before a container starts, kept while it runs, taken back when its share goes.

The pod's cgroup bounds all of its containers, and is there before any of them. What a container reads as its GPU's memory is the
limit of its own cgroup, which is there a moment after its start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import structlog

from agent.errors import NvmlUnavailable
from agent.gpus.facts import Answer, Known, Missing
from agent.gpus.memory_limits import CgroupLimit, GpuCgroup, ReadLimits, SetLimits
from agent.gpus.nvml.access import CLOSED, PAUSED
from agent.gpus.nvml.time_limit import NvmlCalls
from agent.limits import mps
from agent.limits.cgroups import PodCgroups
from agent.limits.level import NOT_LOOKED, Findings, LimitsLevel, decide, refused
from agent.limits.mps import Mount, MpsDaemons
from agent.limits.share import Share, bytes_by_gpu
from topology.node.sharing import Limits

log = structlog.get_logger()

_ANSWER_SECONDS = 5.0
"""For one visit to NVML, and those before it."""
_AGAIN_SECONDS = 30.0
"""After which it is read what stands."""


@dataclass(frozen=True, slots=True)
class Backends:
    """What the node has to hold containers with."""

    set_limits: SetLimits
    read_limits: ReadLimits
    cgroups: PodCgroups
    daemons: MpsDaemons | None
    """`None`: MPS is off."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The limits that are to stand, GPU by GPU."""

    pods: Mapping[GpuCgroup, int]
    containers: Mapping[GpuCgroup, int]


class Limiter:
    """One node's; use it on one event loop.

    Args:
        backends: To hold containers with.
        required: Whether a container that cannot be held to its share may not start.
        clock: Monotonic seconds.
        tell: Is told the level whenever it is another one.

    """

    def __init__(
        self, backends: Backends, *, required: bool, clock: Callable[[], float], tell: Callable[[LimitsLevel], None]
    ) -> None:
        self._backends = backends
        self._required = required
        self._clock = clock
        self._tell = tell
        self._nvml = NvmlCalls(_ANSWER_SECONDS)
        self._gpus: frozenset[str] = frozenset()
        self._pipes: Mapping[str, Path] = {}
        self._takes = False
        self._refusals: dict[GpuCgroup, str] = {}
        self._standing: dict[GpuCgroup, int] = {}
        self._read_again_at = clock()
        self.level = NOT_LOOKED
        """What holds containers now, as of the last look."""

    @property
    def held_back(self) -> str:
        """Why no container with a share may start; empty where they may."""
        waits = self.level is NOT_LOOKED or (self._required and self.level.limits is Limits.NONE)
        return "; ".join(self.level.reasons) if waits else ""

    async def look(self, gpus: Collection[str]) -> LimitsLevel:
        """Find out what holds containers on GPUs that may be shared; never raises."""
        self._gpus = frozenset(gpus)
        try:
            findings = await self._nvml.call_async(self._found)
        except NvmlUnavailable as error:
            if error.code in (PAUSED, CLOSED) and self.level is not NOT_LOOKED:
                return self.level  # a driver that is left alone takes what it took
            findings = self._findings(dict.fromkeys(gpus, error.code))
        self._takes = decide(findings).limits is Limits.CGROUP
        of_pods = {place.gpu: code for place, code in self._refusals.items()}
        before, self.level = self.level, decide(replace(findings, refusals={**of_pods, **findings.refusals}))
        if self.level != before:
            log.info("limits on shares", limits=self.level.limits, reasons="; ".join(self.level.reasons))
            self._tell(self.level)
        return self.level

    def environment(self, share: Share) -> Mapping[str, str]:
        """Return what the container with this share is told by its environment."""
        return mps.environment(share) if share.gpu in self._pipes else {}

    def mounts(self, share: Share) -> tuple[Mount, ...]:
        """Return the folders of the host that the container with this share needs."""
        daemons, pipe = self._backends.daemons, self._pipes.get(share.gpu)
        return daemons.mounts(pipe) if daemons and pipe else ()

    async def before_start(self, shares: Collection[Share]) -> str | None:
        """Hold a pod, of which these are all shares, to them; return why its container has to wait, or `None`."""
        if not self._takes:
            return self.held_back or None
        target = await asyncio.to_thread(partial(self._wanted, shares))
        if not shares:
            reason = "the ledger promises its pod no share"
        elif target.pods:
            refusals = await self._hold(target.pods)
            self._refusals = {
                place: code for place, code in self._refusals.items() if place not in target.pods
            } | refusals
            reason = next(map(refused, refusals.values()), "")
        else:
            reason = "its pod has no cgroup that the agent sees"
        if reason:
            log.warning("a pod is not held to its share", reason=reason, required=self._required)
        return reason if reason and self._required else None

    async def follow(self, shares: Collection[Share]) -> None:
        """Have exactly these limits stand: all shares of the node, by a ledger that is known; never raises."""
        if not self._takes:
            return
        target = await asyncio.to_thread(partial(self._wanted, shares))
        limits = {**target.pods, **target.containers}
        if self._clock() >= self._read_again_at:
            await self._read(limits.keys())
        gone = await asyncio.to_thread(partial(_still_there, self._standing.keys() - limits.keys()))
        changed = {place: limit for place, limit in limits.items() if self._standing.get(place) != limit}
        self._standing = {place: limit for place, limit in self._standing.items() if place in limits}
        refusals = await self._hold({**dict.fromkeys(gone), **changed})
        self._refusals = {place: code for place, code in refusals.items() if place in target.pods}

    def _findings(self, refusals: Mapping[str, str]) -> Findings:
        uses_mps, pipes = self._backends.daemons is not None, frozenset(self._pipes)
        return Findings(self._gpus, refusals=refusals, mps=uses_mps, daemons=pipes)

    def _found(self) -> Findings:
        """Look at cgroups, daemons and NVML."""
        cgroups, daemons = self._backends.cgroups, self._backends.daemons
        self._pipes = daemons.look(self._gpus) if daemons else {}
        top = cgroups.all_pods() if cgroups.is_unified else None
        findings = replace(self._findings({}), unified=cgroups.is_unified, pods=top is not None)
        return (
            replace(findings, refusals=self._tried(str(top))) if decide(findings).limits is Limits.CGROUP else findings
        )

    def _tried(self, top: str) -> dict[str, str]:
        """Return GPU → why it takes no limit: only what is set proves that one can be, so none is set where there is none."""
        places = [GpuCgroup(gpu, top) for gpu in self._gpus]
        readings = self._backends.read_limits(places)
        without = [place for place in places if not _has_limit(readings[place])]
        answers = self._backends.set_limits(dict.fromkeys(without))
        return {place.gpu: answer.code for place, answer in answers.items() if isinstance(answer, Missing)}

    def _wanted(self, shares: Collection[Share]) -> _Wanted:
        """Return the limits of pods and containers, where these have cgroups."""
        pods: dict[GpuCgroup, int] = {}
        containers: dict[GpuCgroup, int] = {}
        cgroups = self._backends.cgroups
        for uid, of_pod in groupby(sorted(shares, key=lambda share: share.uid), lambda share: share.uid):
            limits = bytes_by_gpu(of_pod)
            if pod := cgroups.of_pod(uid):
                pods |= {GpuCgroup(gpu, str(pod)): limit for gpu, limit in limits.items()}
                own = cgroups.of_containers(pod)
                containers |= {GpuCgroup(gpu, str(cgroup)): limit for gpu, limit in limits.items() for cgroup in own}
        return _Wanted(pods, containers)

    async def _read(self, limited: Collection[GpuCgroup]) -> None:
        """Take for standing what NVML says, of all pods: an agent before us may have set limits, a new driver knows none."""
        pods = await asyncio.to_thread(lambda: [*self._backends.cgroups.pods()])
        places = {GpuCgroup(gpu, str(pod)) for pod in pods for gpu in self._gpus}.union(limited)
        try:
            readings = await self._nvml.call_async(lambda: self._backends.read_limits(places)) if places else {}
        except NvmlUnavailable:
            return
        self._read_again_at = self._clock() + _AGAIN_SECONDS
        limits = {place: answer.value.hard_bytes for place, answer in readings.items() if isinstance(answer, Known)}
        self._standing = {place: limit for place, limit in limits.items() if limit is not None}

    async def _hold(self, limits: Mapping[GpuCgroup, int | None]) -> dict[GpuCgroup, str]:
        """Set limits, and compare what is read back; return NVML's code, or ours, for each that does not hold."""
        if not limits:
            return {}
        try:
            answers = await self._nvml.call_async(lambda: self._backends.set_limits(limits))
        except NvmlUnavailable as error:
            return dict.fromkeys(limits, error.code)
        codes = {place: _refusal(answers[place], limit) for place, limit in limits.items()}
        self._standing |= {place: limit for place, limit in limits.items() if limit is not None and not codes[place]}
        return {place: code for place, code in codes.items() if code}


def _still_there(places: Collection[GpuCgroup]) -> set[GpuCgroup]:
    return {place for place in places if Path(place.cgroup).is_dir()}


def _has_limit(answer: Answer[CgroupLimit]) -> bool:
    return isinstance(answer, Known) and answer.value.hard_bytes is not None


def _refusal(answer: Answer[int | None], limit: int | None) -> str:
    """Return NVML's code, or ours where it says another limit than was set; empty where all is well."""
    if isinstance(answer, Missing):
        return answer.code
    return "" if answer.value == limit else "READS_OTHERWISE"
