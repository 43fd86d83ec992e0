"""The words by which pods say which group they belong to: our annotation, and those of other programs.

One row for each program, in the order in which they count. The first one that says something is believed, and our
annotation goes before all of them. Only what stands on the pod is read here. What another object alone knows, such as how
many pods a Job makes, is read off that one where somebody wants it (`group_sizes`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from extender.cluster.objects.kinds import Pod
from topology.annotations import keys
from topology.request.domains import OURS, GroupName, GroupSource

GroupKey = tuple[str, str, str, str]
"""Namespace, whose word it is, name, and run."""
MAX_NAME_CHARACTERS: Final = 253
"""Of a name of Kubernetes; an annotation may hold any text."""
_COUNT = re.compile(r"[0-9]{1,9}")

_LASTING: Final = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node"})
"""Controllers of pods that are no run of anything: several of them may share a group, and one may have several over its time."""


Word = Callable[[Pod], str]
"""Reads one thing off a pod; empty where it is not there."""


@dataclass(frozen=True, slots=True)
class _Label:
    key: str
    usual: str = ""
    """A value that says nothing."""

    def __call__(self, pod: Pod) -> str:
        text = (pod.metadata.labels or {}).get(self.key, "")
        return "" if text == self.usual else text


@dataclass(frozen=True, slots=True)
class _Annotation:
    key: str

    def __call__(self, pod: Pod) -> str:
        return (pod.metadata.annotations or {}).get(self.key, "")


def _owner_uid(pod: Pod) -> str:
    owner = pod.metadata.controller
    return owner.uid if owner else ""


def _scheduling_group(pod: Pod) -> str:
    group = pod.spec.scheduling_group
    return (group.pod_group_name or "") if group else ""


def _workload(pod: Pod) -> str:
    return pod.spec.workload_ref.name if pod.spec.workload_ref else ""


def _group_of_workload(pod: Pod) -> str:
    reference = pod.spec.workload_ref
    return "/".join(filter(None, (reference.pod_group, reference.pod_group_replica_key))) if reference else ""


def _nothing(pod: Pod) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class _Row:
    """How the pods of one program name their group."""

    source: GroupSource
    name: Word
    """Of an object; where it says nothing the pod has no such group."""
    part: Word = _nothing
    """Which group of the object."""
    uid: Word = _nothing
    """Of the object, where its pods say so: tells it from an earlier one of that name."""
    size: Word = _nothing
    only_with: Word | None = None
    """What else has to be there, or the pod has no such group."""
    is_started: bool = False
    """Whether the object is what somebody started, though others may control its pods."""
    restarts_pods_of: frozenset[str] = frozenset()
    """Kinds of the controllers of the pods that it restarts together; empty: it may leave the others alone, or fail."""
    restarts_by: Word = _nothing
    """Which of its pods it restarts together, or which object of that name."""

    @property
    def words(self) -> tuple[Word | None, ...]:
        """All that is read."""
        return self.name, self.part, self.uid, self.size, self.only_with

    def read(self, pod: Pod) -> GroupName | None:
        """Return the group that a pod says it is in."""
        name = self.name(pod)
        if not name or (self.only_with and not self.only_with(pod)):
            return None
        full = "/".join(filter(None, (name, self.part(pod))))
        if len(full) > MAX_NAME_CHARACTERS:
            return None
        size = self.size(pod)
        return GroupName(self.source, full, self.uid(pod), int(size) if _COUNT.fullmatch(size) else None)


_TRAINING = frozenset({"PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"})
"""Jobs of Kubeflow that replace each pod. An MPIJob is none: its launcher has no GPU, and counts a failure for each lost pod."""
_JOB_SET = "jobset.sigs.k8s.io"
_LWS = "leaderworkerset.sigs.k8s.io"
_ROWS: Final = (
    _Row(GroupSource.KUBE_SCHEDULER, _scheduling_group),
    _Row(GroupSource.KUBE_SCHEDULER, _workload, _group_of_workload),
    _Row(GroupSource.VOLCANO, _Annotation("scheduling.k8s.io/group-name")),
    _Row(GroupSource.VOLCANO, _Annotation("scheduling.volcano.sh/group-name")),
    _Row(GroupSource.KAI, _Annotation("pod-group-name")),
    _Row(GroupSource.COSCHEDULING, _Label("scheduling.x-k8s.io/pod-group")),
    _Row(GroupSource.GROVE, _Label("grove.io/podgang")),
    _Row(
        GroupSource.LEADER_WORKER_SET,
        _Label(f"{_LWS}/name"),
        part=_Label(f"{_LWS}/group-index"),
        size=_Annotation(f"{_LWS}/size"),
        is_started=True,
        restarts_pods_of=frozenset({"StatefulSet"}),
        restarts_by=_Label(f"{_LWS}/group-index"),
    ),
    _Row(
        GroupSource.KUEUE,
        _Label("kueue.x-k8s.io/pod-group-name"),
        size=_Annotation("kueue.x-k8s.io/pod-group-total-count"),
        is_started=True,
    ),
    _Row(
        GroupSource.JOB_SET,
        _Label(f"{_JOB_SET}/jobset-name"),
        part=_Label(f"{_JOB_SET}/group-name", usual="default"),
        uid=_Label(f"{_JOB_SET}/jobset-uid"),
        is_started=True,
        restarts_pods_of=frozenset({"Job"}),
        restarts_by=_Label(f"{_JOB_SET}/jobset-uid"),
    ),
    _Row(
        GroupSource.KUBEFLOW,
        _Label("training.kubeflow.org/job-name"),
        is_started=True,
        restarts_pods_of=_TRAINING,
        restarts_by=_owner_uid,
    ),
    _Row(
        GroupSource.RAY,
        _Label("ray.io/cluster"),
        part=_Label("ray.io/worker-group-replica-name"),
        uid=_owner_uid,
        is_started=True,
    ),
    _Row(
        GroupSource.JOB,
        _Label("batch.kubernetes.io/job-name"),
        uid=_Label("batch.kubernetes.io/controller-uid"),
        only_with=_Label("batch.kubernetes.io/job-completion-index"),
    ),
)


_WORDS = [word for row in _ROWS for word in row.words]
LABELS: Final = frozenset(word.key for word in _WORDS if isinstance(word, _Label))
"""The labels of pods that are read here; a pod is kept without all others."""
ANNOTATIONS: Final = frozenset(word.key for word in _WORDS if isinstance(word, _Annotation))
"""The annotations of others that are read here."""


class GroupWords:
    """Whose words count, beside ours."""

    def __init__(self, sources: Iterable[GroupSource] = GroupSource) -> None:
        chosen = frozenset(sources)
        self._rows = tuple(row for row in _ROWS if row.source in chosen)

    def group_of(self, pod: Pod) -> GroupName | None:
        """Return the group that a pod says it is in; a group of which it says that it is alone is none."""
        ours = (pod.metadata.annotations or {}).get(keys.GROUP)
        if ours is not None:
            return GroupName(OURS, ours, _run(pod))
        if not _says_anything(pod):
            return None
        group = next((group for row in self._rows if (group := row.read(pod))), None)
        return None if group is not None and group.size == 1 else group


ALL_WORDS: Final = GroupWords()
"""Those of all programs that we know."""


def _says_anything(pod: Pod) -> bool:
    """Whether one of these words is there at all; most pods have none, and every call asks."""
    metadata, spec = pod.metadata, pod.spec
    return (
        not LABELS.isdisjoint(metadata.labels or ())
        or not ANNOTATIONS.isdisjoint(metadata.annotations or ())
        or spec.scheduling_group is not None
        or spec.workload_ref is not None
    )


def is_started_with_others(pod: Pod) -> bool:
    """Whether the pod is of an object that starts several pods, and may restart all of them when one ends."""
    return _says_anything(pod) and any(row.is_started and row.name(pod) for row in _ROWS)


def restart_group_of(pod: Pod) -> str:
    """Return the identity of the pods that restart together with this one, itself included; empty where it restarts alone.

    The next pods have the same identity, also where new Jobs or StatefulSets create them. Labels are believed within their
    namespace only.
    """
    owner = pod.metadata.controller
    if owner is None or not _says_anything(pod):
        return ""
    row = next((row for row in _ROWS if row.is_started and row.name(pod)), None)
    if row is None or owner.kind not in row.restarts_pods_of:
        return ""
    return "/".join((pod.metadata.namespace, row.source, row.name(pod), row.restarts_by(pod)))


def _run(pod: Pod) -> str:
    """Return what started a pod that names its group by our annotation: many runs may be made from one template.

    Where nothing is known to have been started, as with bare pods and those of a Deployment, the name alone counts.
    """
    if (pod.metadata.annotations or {}).get(keys.GROUP_SCOPE) == "namespace":
        return ""
    for row in _ROWS:
        if row.is_started and (name := row.name(pod)):
            return f"{row.source}/{name}/{row.uid(pod)}"
    owner = pod.metadata.controller
    return owner.uid if owner and owner.kind not in _LASTING else ""
