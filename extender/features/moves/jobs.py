"""Which Jobs outlive the eviction of one of their pods. No I/O.

A Job counts each failed pod towards its `backoffLimit`, unless its `podFailurePolicy` ignores disruptions. The API server lets
nobody change that policy, so each Job is read once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec

from extender.cluster.objects.kinds import ObjectMeta
from extender.kit.fair_table import FairTable

JOBS: Final = 10_000
"""That are remembered; a namespace with many Jobs forgets its own ones."""
TO_READ: Final = 256
"""Jobs that are yet to be read."""
AGAIN_SECONDS: Final = 300.0
"""After which a Job is read again that could not be read."""
_OF_KUBELET: Final = frozenset({"ContainersReady", "Initialized", "PodReadyToStartContainers", "PodScheduled", "Ready"})
"""Types of the conditions that every pod has when it ends, with some status."""
_EXIT_CODES: Final = frozenset(range(1, 256))
"""Of containers that count as failed."""


class ConditionPattern(msgspec.Struct, frozen=True):
    """A condition of a pod; the API server writes the default of `status`."""

    type: str = ""
    status: str = "True"


class ExitCodes(msgspec.Struct, frozen=True):
    """Exit codes of containers."""

    operator: str = "In"
    values: list[int] = []

    @property
    def include_any(self) -> bool:
        """Whether an evicted container may end with one of these: a program that handles the signal chooses its exit code."""
        named = _EXIT_CODES.intersection(self.values)
        return named != _EXIT_CODES if self.operator == "NotIn" else bool(named)


class FailureRule(msgspec.Struct, frozen=True, rename="camel"):
    """What a Job does about failed pods of one kind."""

    action: str = ""
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: list[ConditionPattern] | None = None

    @property
    def always_matches(self) -> bool:
        """Whether every evicted pod is one of these: the API server gives it the condition."""
        return self.on_exit_codes is None and any(
            (pattern.type, pattern.status) == ("DisruptionTarget", "True") for pattern in self.on_pod_conditions or ()
        )

    @property
    def may_match(self) -> bool:
        """Whether an evicted pod may be one of these. One pattern is enough, and names of containers only narrow the rule."""
        if self.on_exit_codes is not None:
            return self.on_exit_codes.include_any
        return self.always_matches or any(pattern.type in _OF_KUBELET for pattern in self.on_pod_conditions or ())


class FailurePolicy(msgspec.Struct, frozen=True):
    """The first rule that matches counts."""

    rules: list[FailureRule] = []


class KubernetesJobSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a Job does about failed pods."""

    pod_failure_policy: FailurePolicy | None = None


class KubernetesJob(msgspec.Struct, frozen=True):
    """A Job of Kubernetes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KubernetesJobSpec = KubernetesJobSpec()

    @property
    def ignores_evictions(self) -> bool:
        """Whether an evicted pod counts as no failure, however its containers end."""
        policy = self.spec.pod_failure_policy
        for rule in policy.rules if policy else ():
            if rule.action != "Ignore" and rule.may_match:
                return False
            if rule.action == "Ignore" and rule.always_matches:
                return True
        return False

    @property
    def manager(self) -> str:
        """The kind of what manages the Job, and may restart further Jobs with it; a CronJob does not."""
        owner = self.metadata.controller
        return owner.kind if owner is not None and owner.kind != "CronJob" else ""


class JobVerdict(StrEnum):
    """What the eviction of a pod does to its Job."""

    CONTINUES = "continues"
    """It creates the next pod, and counts no failure."""
    COUNTS = "counts"
    """It counts a failure, which may end it."""
    OF_JOB_SET = "of-job-set"
    """It does so, and restarts with the other Jobs of its JobSet."""
    MANAGED = "managed"
    """Another object manages it."""
    UNREAD = "unread"
    """It has not been read, or cannot be."""

    @classmethod
    def of(cls, job: KubernetesJob) -> JobVerdict:
        """Return it for a Job that has been read."""
        if job.manager not in ("", "JobSet"):
            return cls.MANAGED
        if not job.ignores_evictions:
            return cls.COUNTS
        return cls.OF_JOB_SET if job.manager else cls.CONTINUES


@dataclass(frozen=True, slots=True)
class JobName:
    """A Job as its pods name it."""

    namespace: str
    name: str
    uid: str


@dataclass(slots=True)
class Jobs:
    """What has been read of Jobs: a verdict each, since labels and annotations may be long. Times are monotonic seconds."""

    _read: FairTable[JobName, tuple[JobVerdict, float]] = field(default_factory=lambda: FairTable(JOBS))
    """With when."""
    _to_read: FairTable[JobName, JobName] = field(default_factory=lambda: FairTable(TO_READ))

    def verdict(self, job: JobName, now: float) -> JobVerdict:
        """Return what has been read of a Job; one that has not been read is to be read."""
        verdict, read_at = self._read.get(job) or (JobVerdict.UNREAD, -math.inf)
        if verdict is JobVerdict.UNREAD and now - read_at >= AGAIN_SECONDS and job not in self._to_read:
            self._to_read.put(job, job.namespace, job)
        return verdict

    def to_read(self, most: int) -> list[JobName]:
        """Take out at most so many Jobs that are to be read, of one namespace after the other."""
        return [self._to_read.pop_in_turn() for _ in range(min(most, len(self._to_read)))]

    def learn(self, name: JobName, job: KubernetesJob | None, now: float) -> None:
        """Take note of a Job as it was read; of `None`, or of a namesake, that it could not be read."""
        is_same = job is not None and job.metadata.uid == name.uid
        verdict = JobVerdict.of(job) if job is not None and is_same else JobVerdict.UNREAD
        self._read.put(name, name.namespace, (verdict, now))
