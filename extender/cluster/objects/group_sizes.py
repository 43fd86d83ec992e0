"""Read how many pods a group has off the object that creates it.

One row for each kind, with the few fields that are read.

What a pod or our annotation says goes first. Everything else in these objects is skipped unparsed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from extender.cluster.objects.kinds import ObjectMeta
from topology.request.domains import GroupName, GroupSource

_NO_GROUP_OF_ITS_OWN: Final = "default"
"""The group that JobSet puts Jobs in of which nobody says more."""


class GroupMaker(msgspec.Struct, frozen=True):
    """An object that makes groups, of any kind."""

    metadata: ObjectMeta = ObjectMeta()

    def groups(self) -> Iterator[GroupName]:
        """Yield the groups, named as their pods name them, each with its size."""
        yield from ()


class JobSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How many pods a Job has."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""

    @property
    def pods(self) -> int:
        """At a time; of more completions the later pods take the place of those that have ended."""
        parallelism = 1 if self.parallelism is None else self.parallelism
        return parallelism if self.completions is None else min(parallelism, self.completions)


class BatchJob(GroupMaker, frozen=True):
    """Kubernetes' own; only the pods of one with indexes name it as their group."""

    spec: JobSpec = JobSpec()

    def groups(self) -> Iterator[GroupName]:
        """Yield the one that it makes."""
        if self.spec.completion_mode == "Indexed":
            yield GroupName(GroupSource.JOB, self.metadata.name, self.metadata.uid, self.spec.pods)


class JobTemplate(msgspec.Struct, frozen=True):
    """What Jobs are made from."""

    spec: JobSpec = JobSpec()


class ReplicatedJob(msgspec.Struct, frozen=True, rename="camel"):
    """So many Jobs from one template."""

    group_name: str = _NO_GROUP_OF_ITS_OWN
    replicas: int = 1
    template: JobTemplate = JobTemplate()


class JobSetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The Jobs of a JobSet, also those that are made later."""

    replicated_jobs: list[ReplicatedJob] | None = None


class JobSet(GroupMaker, frozen=True):
    """Several Jobs that belong together, as one group or a few."""

    spec: JobSetSpec = JobSetSpec()

    def groups(self) -> Iterator[GroupName]:
        """Yield its groups, each with the pods of all its Jobs."""
        sizes: Counter[str] = Counter()
        for jobs in self.spec.replicated_jobs or ():
            sizes[jobs.group_name] += jobs.replicas * jobs.template.spec.pods
        for group, size in sizes.items():
            name = self.metadata.name if group == _NO_GROUP_OF_ITS_OWN else f"{self.metadata.name}/{group}"
            yield GroupName(GroupSource.JOB_SET, name, self.metadata.uid, size)


class Gang(msgspec.Struct, frozen=True, rename="camel"):
    """Pods that start together or not at all."""

    min_count: int | None = None


class SchedulingPolicy(msgspec.Struct, frozen=True):
    """How a group is scheduled; no gang: pod by pod."""

    gang: Gang | None = None


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    """How many pods a group needs to start: kube-scheduler's words, and those of the others."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    min_member: int | None = None


class PodGroup(GroupMaker, frozen=True):
    """kube-scheduler's own."""

    SOURCE: ClassVar[GroupSource] = GroupSource.KUBE_SCHEDULER
    spec: PodGroupSpec = PodGroupSpec()

    def groups(self) -> Iterator[GroupName]:
        """Yield the one that it is."""
        gang = self.spec.scheduling_policy.gang
        yield GroupName(self.SOURCE, self.metadata.name, size=gang.min_count if gang else self.spec.min_member)


class VolcanoPodGroup(PodGroup, frozen=True):
    """Volcano's."""

    SOURCE: ClassVar[GroupSource] = GroupSource.VOLCANO


class CoschedulingPodGroup(PodGroup, frozen=True):
    """The coscheduling plugin's."""

    SOURCE: ClassVar[GroupSource] = GroupSource.COSCHEDULING


@dataclass(frozen=True, slots=True)
class Row:
    """One kind, and where the API server has it."""

    source: GroupSource
    kind: type[GroupMaker]
    paths: tuple[str, ...]
    """Of several versions the newest first; the first that is served is read."""


ROWS: Final = (
    Row(
        GroupSource.KUBE_SCHEDULER,
        PodGroup,
        ("/apis/scheduling.k8s.io/v1beta1/podgroups", "/apis/scheduling.k8s.io/v1alpha2/podgroups"),
    ),
    Row(GroupSource.VOLCANO, VolcanoPodGroup, ("/apis/scheduling.volcano.sh/v1beta1/podgroups",)),
    Row(GroupSource.COSCHEDULING, CoschedulingPodGroup, ("/apis/scheduling.x-k8s.io/v1alpha1/podgroups",)),
    Row(GroupSource.JOB_SET, JobSet, ("/apis/jobset.x-k8s.io/v1alpha2/jobsets",)),
    Row(GroupSource.JOB, BatchJob, ("/apis/batch/v1/jobs",)),
)
