"""The health machine beside NVML: takes in errors as they happen and what each look finds, and marks the GPUs' status.

What NVML itself says of a GPU holds as long as it says so. The machine adds what NVML forgets: what has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from threading import Lock
from typing import Protocol

import structlog

from agent.gpus.critical_errors import Coverage, CriticalError
from agent.gpus.facts import GpuFacts, Known, NvmlFacts, Watched, value_of
from agent.gpus.faults import is_lost
from agent.gpus.health.link_watch import faults, usable
from agent.gpus.health.rates import Rates
from agent.gpus.health.readings import GpuReading, XidCount
from agent.gpus.health.stepping_clock import SteppingClock
from agent.health import evidence
from agent.health.links import LinkChange, NodeLinks
from agent.health.memory import HealthMemory
from agent.health.node import HealthChange, HealthMachine
from agent.health.policy import HealthPolicy
from agent.health.record import Doubt, State, Verdict
from topology.annotations.overrides import Override, Word, decode_overrides
from topology.errors import PayloadError
from topology.node.status import GpuStatus, NodeGpuStatus, Outlook

log = structlog.get_logger()


class MemoryPort(Protocol):
    """Where the machine's memory outlives the agent."""

    def load(self) -> HealthMemory:
        """Return what was kept last; nothing where nothing can be read."""
        ...

    def keep(self, memory: HealthMemory) -> None:
        """Keep this from now on; does not wait, and does not raise."""
        ...


class GpuHealth:
    """The health of GPUs and NVLinks. Told on one thread, asked on another.

    Times are the wall clock's, so that what was kept over a reboot keeps its meaning. They elapse as the monotonic clock
    does, as long as the node is up. When the wall clock steps, all that is remembered moves with it.

    Args:
        clock: seconds since the epoch.
        policy: the figures.
        memory: what an earlier agent has kept, and where this one keeps it; `None`: nothing outlives the agent.
        boot: names this boot of the machine; empty where that cannot be told.
        tell: hears of each change of a GPU's health, with the GPU's index where that is known; does not wait, and does not raise.
        tell_links: the same of NVLinks.
        monotonic: seconds since the machine was started; `None`: `clock` never steps.

    """

    def __init__(
        self,
        clock: Callable[[], float],
        policy: HealthPolicy,
        memory: MemoryPort | None = None,
        boot: str = "",
        tell: Callable[[HealthChange, int | None], None] = lambda change, index: None,
        tell_links: Callable[[LinkChange, int | None], None] = lambda change, index: None,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._memory = memory
        self._boot = boot
        self._tell = tell
        self._tell_links = tell_links
        self._lock = Lock()
        self._overrides: Mapping[str, Override] = {}
        self._said: str | None = None
        self._xids: dict[str, dict[int, XidCount]] = {}
        self._facts: dict[str, tuple[int, GpuFacts]] = {}
        self._looked_at = 0.0
        self._rates = Rates(policy.rate_window)
        self._indexes: dict[str, int] = {}
        self._kept = memory.load() if memory else HealthMemory()
        self._node = HealthMachine(policy, self._kept.gpus)
        has_booted = bool(boot and self._kept.boot and boot != self._kept.boot)
        self._links = NodeLinks(policy, self._kept.links, has_booted=has_booted)
        self.coverage: Coverage | None = None
        """`None` while nobody listens."""
        is_of_this_boot = bool(boot and self._kept.boot == boot)
        self._clock = SteppingClock(clock, monotonic, self._kept.zero if is_of_this_boot else None, self._move)
        if has_booted:
            now = self._clock()
            for uuid in self._kept.gpus:
                self._node.told(uuid, evidence.Booted(), now)

    def happened(self, xid: CriticalError) -> bool:
        """Take in an error; returns whether it closes a GPU that was open."""
        if not xid.uuid:
            return False  # whose it is, a look has to find out
        with self._lock:
            now = self._clock()
            counts = self._xids.setdefault(xid.uuid, {})
            counts[xid.number] = XidCount(counts[xid.number].count + 1 if xid.number in counts else 1, now)
            was_open = self._node.verdict(xid.uuid, now).state.takes_pods
            self._node.told(xid.uuid, evidence.Xid(xid.number), now)
            self._keep()
            return was_open and not self._node.verdict(xid.uuid, now).state.takes_pods

    def overridden(self, text: str) -> bool:
        """Take in what people say of the GPUs, as the node's annotation has it; returns whether it is something new."""
        with self._lock:
            if text == self._said:
                return False
            self._said = text
            try:
                self._overrides = decode_overrides(text) if text else {}
            except PayloadError as error:
                log.warning(
                    "what is said of the GPUs cannot be read, and what was said before stands", reason=str(error)
                )
            return True

    @property
    def in_storm(self) -> bool:
        """Whether each look makes a driver slower that is slow already."""
        with self._lock:
            return self._node.has_storm(self._clock())

    def readings(self) -> list[GpuReading]:
        """Return what the last look gave of each GPU that answered."""
        with self._lock:
            now = self._clock()
            return [
                GpuReading(
                    uuid,
                    index,
                    self._node.verdict(uuid, now).state,
                    dict(self._xids.get(uuid, {})),
                    facts,
                    self._looked_at,
                )
                for uuid, (index, facts) in self._facts.items()
            ]

    def usable(self, facts: NvmlFacts) -> NvmlFacts:
        """Return a look as if the NVLinks were down that have not been up for long enough."""
        with self._lock:
            return usable(facts, self._links, self._clock())

    def marked(self, status: NodeGpuStatus, facts: NvmlFacts | None = None) -> NodeGpuStatus:
        """Return the status with what is known of the GPUs beside it; `facts` is the look behind it, where there was one."""
        with self._lock:
            if facts:
                self._look(status, facts)
            now = self._clock()
            for gpu in (
                status.gpus if self._said is not None else ()
            ):  # until we hear of it, what an earlier agent heard stands
                self._obey(gpu.uuid, now)
            for change in self._node.changes(now):
                self._tell(change, self._indexes.get(change.gpu))
            for link_change in self._links.changes(now):
                self._tell_links(link_change, self._indexes.get(link_change.gpu))
            self._keep()
            link_faults = faults(self._links)
            gpus = tuple(
                _marked(
                    _excused(gpu, self._node.excused(gpu.uuid)),
                    self._node.verdict(gpu.uuid, now),
                    self._node.doubt(gpu.uuid, now),
                )
                for gpu in status.gpus
            )
        untold = self.coverage.untold if self.coverage else ()
        reasons = (f"critical errors are not told: {', '.join(untold)}",) if untold else ()
        return replace(status, gpus=gpus, link_faults=link_faults, reasons=(*status.reasons, *reasons))

    def _move(self, seconds: float) -> None:
        """Have all that is remembered move with the wall clock."""
        self._node.move(seconds)
        self._links.move(seconds)

    def _look(self, status: NodeGpuStatus, facts: NvmlFacts) -> None:
        now = self._clock()
        self._looked_at = now
        self._node.has(gpu.uuid for gpu in status.gpus)
        self._links.has(gpu.uuid for gpu in status.gpus)
        for fault in status.link_faults:
            self._links.should_be_up(fault.gpu, fault.link, now)
        self._rates.forget_all_but({gpu.uuid for gpu in status.gpus})
        indexed = ((index, value_of(gpu)) for index, gpu in enumerate(facts.gpus))
        self._facts = {gpu.uuid.value: (index, gpu) for index, gpu in indexed if gpu and isinstance(gpu.uuid, Known)}
        self._indexes |= {uuid: index for uuid, (index, _) in self._facts.items()}  # one that is lost keeps its own
        self._xids = {gpu.uuid: self._xids.get(gpu.uuid, {}) for gpu in status.gpus}
        for gpu in status.gpus:
            _, gpu_facts = self._facts.get(gpu.uuid, (0, None))
            self._node.told(gpu.uuid, evidence.Lost() if is_lost(gpu) else evidence.Back(), now)
            for fact in (*_told(gpu_facts), *self._rising(gpu.uuid, gpu_facts.watched, now)) if gpu_facts else ():
                self._node.told(gpu.uuid, fact, now)

    def _rising(self, uuid: str, gpu: Watched, now: float) -> Iterator[evidence.Evidence]:
        """Yield what two looks say of one GPU's counters."""
        links = value_of(gpu.nvlink_errors)
        counters: tuple[tuple[str, int | None, Callable[[float], evidence.Symptom]], ...] = (
            ("corrected", value_of(gpu.corrected_errors), evidence.Corrected),
            ("replays", value_of(gpu.pcie_replays), lambda rate: evidence.Replays(60 * rate)),
            ("links", sum(links.get(kind, 0) for kind in _CHECKSUMS) if links else None, evidence.LinkErrors),
        )
        for counter, count, symptom in counters:
            if count is not None and (rate := self._rates.per_second(uuid, counter, count, now)) is not None:
                yield symptom(rate)

    def _obey(self, uuid: str, now: float) -> None:
        said = self._overrides.get(uuid)
        if said and said.until is not None and said.until <= now:
            said = None
        self._node.told(uuid, evidence.Cordoned(str(said) if said and said.word is Word.CORDONED else ""), now)
        if said and said.word is Word.HEALTHY:
            self._node.told(uuid, evidence.Cleared(repr(said)), now)

    def _keep(self) -> None:
        memory = HealthMemory(dict(self._node.records), self._boot, self._links.in_trouble, self._clock.zero)
        if self._memory and (memory.gpus, memory.links) != (self._kept.gpus, self._kept.links):
            self._kept = memory
            self._memory.keep(memory)


_CHECKSUMS = ("crc", "receive")
"""The kinds of NVLink errors that are transfers with a wrong checksum, up to Hopper and from Blackwell on."""


def _told(gpu: GpuFacts) -> Iterator[evidence.Evidence]:
    """Yield what a look at one GPU says about its health."""
    if (rows := value_of(gpu.remapped_rows)) and rows.failed:
        yield evidence.RemapFailed()
    if value_of(gpu.watched.sram_exceeded):
        yield evidence.SramExceeded()
    if isinstance(gpu.watched.banks_without_spares, Known):
        yield evidence.WithoutSpares(gpu.watched.banks_without_spares.value)
    if isinstance(gpu.watched.margin_celsius, Known):
        yield evidence.Margin(gpu.watched.margin_celsius.value)
    if isinstance(gpu.watched.recovery_action, Known):
        yield evidence.RecoveryRequested(gpu.watched.recovery_action.value)
    if isinstance(gpu.watched.uncorrected_errors, Known):
        yield evidence.Uncorrected(gpu.watched.uncorrected_errors.value)
    if isinstance(gpu.watched.throttled, Known):
        yield evidence.Throttled(gpu.watched.throttled.value)
    if isinstance(gpu.watched.energy_millijoules, Known):
        yield evidence.Spent(gpu.watched.energy_millijoules.value)


def _excused(gpu: GpuStatus, excused: Collection[str]) -> GpuStatus:
    """NVML's own reason stands; that the GPU takes no pods for it does not."""
    return replace(gpu, healthy=not is_lost(gpu)) if not set(excused).isdisjoint(gpu.reasons) else gpu


def _marked(gpu: GpuStatus, verdict: Verdict, doubt: Doubt | None) -> GpuStatus:
    """Return what is published of a GPU: reasons that NVML gives itself stand already, and only an open GPU is doubtful."""
    gpu = _judged(gpu, verdict)
    if not gpu.healthy:
        return replace(gpu, doubtful=False)
    if doubt is None:
        return gpu
    if verdict.state is State.HEALTHY:
        outlook = Outlook(doubt.next, None if doubt.until is None else int(doubt.until))
        gpu = replace(gpu, reasons=(doubt.reason, *gpu.reasons), outlook=outlook)
    return replace(gpu, doubtful=True)


def _judged(gpu: GpuStatus, verdict: Verdict) -> GpuStatus:
    """Reasons that NVML gives itself stand already."""
    sick_since = None if verdict.sick_since is None else int(verdict.sick_since)
    until = None if verdict.until is None else int(verdict.until)
    outlook = Outlook(verdict.next, until, verdict.remedy) if verdict.next else None
    gpu = replace(gpu, sick_since=sick_since, outlook=outlook)
    if verdict.state is State.HEALTHY or verdict.reason in gpu.reasons:
        return gpu
    return replace(gpu, healthy=gpu.healthy and verdict.state.takes_pods, reasons=(verdict.told, *gpu.reasons))
