"""The health of all GPUs of one node: what each was told, and what only shows when several are seen together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from agent.health.changes import changed, failed_by_count
from agent.health.clock_steps import last_event, moved
from agent.health.concerns import Concern, standing
from agent.health.evidence import Evidence, Xid
from agent.health.policy import HealthPolicy
from agent.health.record import Doubt, GpuRecord, State, Verdict, doubt, forget, judge, next_change
from agent.health.xids import NVLINK_ERROR, OF_LINKS


@dataclass(frozen=True, slots=True)
class HealthChange:
    """What people are to be told of one GPU."""

    gpu: str
    before: Verdict
    """What they were told last."""
    after: Verdict


class HealthMachine:
    """The GPUs of one node, by any name that stays theirs, such as the UUID; times are of one clock that survives boots.

    What is remembered of a time to come counts as of now: that clock was wrong, then or now.
    """

    def __init__(self, policy: HealthPolicy, records: Mapping[str, GpuRecord] = MappingProxyType({})) -> None:
        self._policy = policy
        self._records = dict(records)
        self._latest = max((last_event(record, policy) for record in records.values()), default=-math.inf)
        """No record holds anything that happened later."""

    @property
    def records(self) -> Mapping[str, GpuRecord]:
        """What has to be kept over a restart."""
        return MappingProxyType(self._records)

    def has(self, gpus: Iterable[str]) -> None:
        """Take in which GPUs the node has; others are forgotten."""
        self._records = {gpu: self._records.get(gpu, GpuRecord()) for gpu in gpus}

    def move(self, seconds: float) -> None:
        """Take in that the clock has stepped by so much: what is remembered moves with it."""
        self._records = {gpu: moved(record, seconds) for gpu, record in self._records.items()}
        self._latest += seconds

    def told(self, gpu: str, evidence: Evidence, now: float) -> None:
        """Take in a piece of evidence about one GPU."""
        policy = self._policy
        self._settle(now)
        self._latest = max(self._latest, now)
        before = forget(self._records.get(gpu, GpuRecord()), policy, now)  # what is over must not come back
        record = changed(before, evidence, policy, now)
        self._records[gpu] = record
        if len(record.incidents) > len(before.incidents):
            self._weigh(gpu, evidence, now)

    def verdict(self, gpu: str, now: float) -> Verdict:
        """Return what holds of a GPU now; one of which nothing was told is healthy."""
        self._settle(now)
        record = self._records.get(gpu)
        return judge(record, self._policy, now) if record else Verdict(State.HEALTHY)

    def doubt(self, gpu: str, now: float) -> Doubt | None:
        """Return why a GPU that takes pods is the last among its equals, `None` where it is not."""
        self._settle(now)
        record = self._records.get(gpu)
        return doubt(record, self._policy, now) if record else None

    def excused(self, gpu: str) -> tuple[str, ...]:
        """Return what NVML tells of a GPU for ever, and a person has cleared."""
        record = self._records.get(gpu)
        return record.excused if record else ()

    def changes(self, now: float) -> list[HealthChange]:
        """Return what is new since the last call: another state, or the same with something else to come; each is told once."""
        self._settle(now)
        changes = [
            HealthChange(gpu, record.told, judge(record, self._policy, now)) for gpu, record in self._records.items()
        ]
        news = [change for change in changes if _outlook(change.before) != _outlook(change.after)]
        for change in news:
            self._records[change.gpu] = replace(self._records[change.gpu], told=change.after)
        return news

    def has_storm(self, now: float) -> bool:
        """Whether memory errors are corrected so fast somewhere that the driver itself is slow."""
        self._settle(now)
        return any(
            Concern.CORRECTED in standing(record.concerns, self._policy, now) for record in self._records.values()
        )

    def next_change(self, now: float) -> float:
        """Return when time alone may change a verdict; infinite if never."""
        self._settle(now)
        return min((next_change(record, self._policy, now) for record in self._records.values()), default=math.inf)

    def _settle(self, now: float) -> None:
        if now >= self._latest:
            return
        for gpu, record in self._records.items():
            if (ahead := last_event(record, self._policy) - now) > 0:
                self._records[gpu] = moved(record, -ahead)
        self._latest = now

    def _weigh(self, gpu: str, evidence: Evidence, now: float) -> None:
        """Decide whether a new incident is this GPU's own, and whether it was one too many."""
        of_link = isinstance(evidence, Xid) and evidence.number in OF_LINKS
        if of_link and (sources := self._siblings_with_link_errors(gpu, now)):
            self._uncount([gpu])
            if evidence == Xid(NVLINK_ERROR):
                self._reopen_for_link([gpu, *sources], now)
        shaken = [name for name, record in self._records.items() if _began(record) > now - self._policy.common_cause]
        if len(shaken) >= max(2, math.ceil(len(self._records) / 2)):
            self._uncount(shaken)
            return
        self._records[gpu] = failed_by_count(self._records[gpu], self._policy, now)

    def _siblings_with_link_errors(self, gpu: str, now: float) -> list[str]:
        of_links = {f"xid {number}" for number in OF_LINKS}
        return [
            name
            for name, record in self._records.items()
            if name != gpu
            and record.incidents
            and record.incidents[-1].reason in of_links
            and record.incidents[-1].last >= now - self._policy.burst
        ]

    def _uncount(self, gpus: Iterable[str]) -> None:
        """Let the last incident of each count for nothing, and take back what it was one too many for."""
        for name in gpus:
            record = self._records[name]
            last = replace(record.incidents[-1], counts=False)
            too_many = record.failure and record.failure.by_count and record.failure.since >= last.began
            failure = None if too_many else record.failure
            self._records[name] = replace(record, incidents=(*record.incidents[:-1], last), failure=failure)

    def _reopen_for_link(self, gpus: Iterable[str], now: float) -> None:
        """Open what only this error has closed: both ends of a link tell of it, and the link is what is sick."""
        reason = f"xid {NVLINK_ERROR}"
        for name in gpus:
            record = self._records[name]
            closure = record.closure
            if closure and closure.reason == reason and closure.since >= now - self._policy.burst:
                self._records[name] = replace(record, closure=record.closed_before, closed_before=None)
                self._uncount([name])


def _outlook(verdict: Verdict) -> tuple[State, str, str]:
    return verdict.state, verdict.next, verdict.remedy


def _began(record: GpuRecord) -> float:
    return record.incidents[-1].began if record.incidents else -math.inf
