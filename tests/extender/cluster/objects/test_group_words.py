"""Which group a pod is in, by the words of its controller, of its scheduler, or of the person who wrote it.

The metadata of JobSet, LeaderWorkerSet, Kueue and Jobs is what their real controllers wrote (`tests/cluster/neighbours`). That of
the others is from the constants of their sources.
"""

from __future__ import annotations

import msgspec
import pytest

from extender.cluster.objects.group_words import ALL_WORDS, ANNOTATIONS, LABELS, GroupWords, restart_group_of
from extender.cluster.objects.kinds import Pod
from extender.kubernetes.documents import decoder
from topology.annotations import keys
from topology.request.domains import OURS, GroupName, GroupSource

JOB_UID = "c40f010b-d8d5-41c8-8b6e-b7518dd9cf28"
JOBSET_UID = "a411a378-9599-4dcb-8fba-e3d652092cba"
JOB = {
    "labels": {
        "batch.kubernetes.io/controller-uid": JOB_UID,
        "batch.kubernetes.io/job-completion-index": "1",
        "batch.kubernetes.io/job-name": "train-workers-0",
        "controller-uid": JOB_UID,
        "job-name": "train-workers-0",
    },
    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "uid": JOB_UID, "controller": True}],
}
JOBSET_WORDS = {
    "jobset.sigs.k8s.io/global-replicas": "2",
    "jobset.sigs.k8s.io/group-name": "default",
    "jobset.sigs.k8s.io/job-index": "0",
    "jobset.sigs.k8s.io/jobset-name": "train",
    "jobset.sigs.k8s.io/jobset-uid": JOBSET_UID,
    "jobset.sigs.k8s.io/replicatedjob-name": "workers",
    "jobset.sigs.k8s.io/restart-attempt": "0",
}
JOBSET = {**JOB, "labels": {**JOB["labels"], **JOBSET_WORDS}, "annotations": JOBSET_WORDS}  # type: ignore[dict-item]


def lws(leader: bool) -> dict[str, object]:
    """Return a leader's or a worker's metadata: they have different StatefulSets."""
    return {
        "labels": {
            "apps.kubernetes.io/pod-index": "0",
            "leaderworkerset.sigs.k8s.io/group-index": "0",
            "leaderworkerset.sigs.k8s.io/group-key": "c64651e2dc36faeae2eea7f1bc984c8f9688432f",
            "leaderworkerset.sigs.k8s.io/name": "serve",
            "leaderworkerset.sigs.k8s.io/worker-index": "0" if leader else "1",
        },
        "annotations": {"leaderworkerset.sigs.k8s.io/size": "2"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "uid": f"of-{leader}", "controller": True}
        ],
    }


def kueue(count: str) -> dict[str, object]:
    """Return the metadata of a pod of a pod group of so many."""
    return {
        "labels": {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": "gang"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": count, "kueue.x-k8s.io/workload": "gang"},
    }


def labelled(**labels: str) -> dict[str, object]:
    """Return metadata with labels whose `__` stand for dots and `_` for slashes."""
    return {"labels": {key.replace("__", ".").replace("_", "/", 1): text for key, text in labels.items()}}


def annotated(key: str, text: str) -> dict[str, object]:
    """Return metadata with one annotation."""
    return {"annotations": {key: text}}


def owned(kind: str, uid: str, group: str = "llama", **more: str) -> dict[str, object]:
    """Return the metadata of a pod that names its group by our annotation and has a controller."""
    owner = {"apiVersion": "example.test/v1", "kind": kind, "uid": uid, "controller": True}
    said = {keys.GROUP: group} | {f"{keys.USER_PREFIX}{key}": text for key, text in more.items()}
    return {"annotations": said, "ownerReferences": [owner]}


def read(metadata: object, words: GroupWords = ALL_WORDS, **spec: object) -> GroupName | None:
    """Return the group of a pod as the API server would send it."""
    text = msgspec.json.encode({"kind": "Pod", "metadata": metadata, "spec": {"containers": [], **spec}})
    return words.group_of(decoder(Pod)(text))


RAY = {**labelled(ray__io_cluster="tune"), "ownerReferences": [{"kind": "RayCluster", "uid": "r1", "controller": True}]}


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (annotated("scheduling.k8s.io/group-name", "vcjob-1"), GroupName("volcano", "vcjob-1")),
        (annotated("scheduling.volcano.sh/group-name", "vcjob-1"), GroupName("volcano", "vcjob-1")),
        (annotated("pod-group-name", "pg-train-17"), GroupName("kai", "pg-train-17")),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "train"}}, GroupName("coscheduling", "train")),
        (labelled(grove__io_podgang="serve-0"), GroupName("grove", "serve-0")),
        (lws(leader=True), GroupName("leaderworkerset", "serve/0", size=2)),
        (lws(leader=False), GroupName("leaderworkerset", "serve/0", size=2)),
        (kueue("3"), GroupName("kueue", "gang", size=3)),
        (JOBSET, GroupName("jobset", "train", JOBSET_UID)),
        ({"labels": {"training.kubeflow.org/job-name": "bert"}}, GroupName("kubeflow", "bert")),
        (RAY, GroupName("ray", "tune", "r1")),
        (JOB, GroupName("job", "train-workers-0", JOB_UID)),
    ],
)
def test_a_group_is_read_in_the_words_of_each_program(metadata: object, expected: GroupName) -> None:
    """Name, run and size, as far as the pod says so."""
    assert read(metadata) == expected


def test_the_scheduler_s_own_groups_are_read_from_the_spec() -> None:
    """`schedulingGroup` from Kubernetes 1.36 on, `workloadRef` in 1.35."""
    group = {"podGroupName": "train-workers"}
    assert read({}, schedulingGroup=group) == GroupName("kube-scheduler", "train-workers")
    reference = {"name": "train", "podGroup": "workers", "podGroupReplicaKey": "3"}
    assert read({}, workloadRef=reference) == GroupName("kube-scheduler", "train/workers/3")
    assert read({}, workloadRef={"name": "train", "podGroup": "workers"}) == GroupName(
        "kube-scheduler", "train/workers"
    )


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": {"job-name": "old", "app": "train"}},
        {"labels": {key: text for key, text in JOB["labels"].items() if "index" not in key}},  # type: ignore[attr-defined]
        kueue("1"),
        annotated("scheduling.k8s.io/group-name", "x" * 254),
        {"labels": {"scheduling.x-k8s.io/pod-group": ""}},
    ],
)
def test_other_pods_are_in_no_group(metadata: object) -> None:
    """Nor those of a Job without indexes, which is a queue of work, nor one that is a group of its own."""
    assert read(metadata) is None


def test_a_size_that_is_no_number_is_not_known() -> None:
    """Kueue and LeaderWorkerSet refuse such pods; nobody else has to."""
    assert [read(kueue(text)) for text in ("many", "-2", "1e3", "")] == [GroupName("kueue", "gang")] * 4


def test_the_first_in_the_order_counts() -> None:
    """The documented order is that of the sources; a JobSet in a pod group of Kueue's is Kueue's, ours is ours."""
    every: dict[str, dict[str, str]] = {"labels": {}, "annotations": {}}
    for key in LABELS:
        every["labels"][key] = "2"
    for key in ANNOTATIONS:
        every["annotations"][key] = "2"
    found = []
    for number in range(len(GroupSource)):
        group = read(every, GroupWords([*GroupSource][number:]))
        found.append(group and group.source)
    assert found == [GroupSource.VOLCANO, *[*GroupSource][1:]]
    group = read({**every, "annotations": {**every["annotations"], keys.GROUP: "llama"}})
    assert group is not None and group.source == OURS


def test_a_source_that_is_turned_off_is_not_read() -> None:
    """Then the next one may say something, and our annotation counts always."""
    words = GroupWords(source for source in GroupSource if source is not GroupSource.JOB_SET)
    assert read(JOBSET, words) == GroupName("job", "train-workers-0", JOB_UID)
    assert read(JOBSET, GroupWords(())) is None
    assert read(owned("Job", "j1"), GroupWords(())) == GroupName(OURS, "llama", "j1")


def of_jobset(uid: str, job: str) -> dict[str, object]:
    """Return the metadata of a pod that names its group by our annotation, in one Job of one JobSet."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/jobset-uid": uid}
    return {**owned("Job", job), "labels": labels}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (owned("Job", "j1"), owned("Job", "j2")),
        (owned("PyTorchJob", "j1"), owned("PyTorchJob", "j2")),
        (of_jobset("s1", "j1"), of_jobset("s2", "j2")),
    ],
)
def test_two_runs_of_one_template_are_two_groups(one: object, other: object) -> None:
    """They name one group, and each run has a controller of its own."""
    first, second = read(one), read(other)
    assert first is not None and second is not None
    assert (first.name, first != second) == (second.name, True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (owned("ReplicaSet", "r1"), owned("ReplicaSet", "r2")),
        (owned("StatefulSet", "s1"), owned("ReplicaSet", "r1")),
        (owned("ReplicaSet", "r1"), annotated(keys.GROUP, "llama")),
        (of_jobset("s1", "j1"), of_jobset("s1", "j2")),
        (
            {**lws(leader=True), **owned("StatefulSet", "s1")},
            {**lws(leader=False), **owned("StatefulSet", "s2")},
        ),
        (
            owned("Job", "j1", **{"group-scope": "namespace"}),
            owned("Job", "j2", **{"group-scope": "namespace"}),
        ),
    ],
)
def test_several_owners_may_share_a_group(one: object, other: object) -> None:
    """Those that last, such as Deployments, the Jobs of one JobSet, and whoever says that the name alone counts."""
    assert read(one) == read(other) is not None


def kubeflow(kind: str) -> dict[str, object]:
    """Return the metadata of a pod of a job of Kubeflow."""
    return {**owned(kind, "k1"), "labels": {"training.kubeflow.org/job-name": "bert"}}


def restarts_with(metadata: object) -> str:
    """Return the restart group of a pod as the API server would send it."""
    text = msgspec.json.encode({"metadata": {"namespace": "ml", **metadata}, "spec": {"containers": []}})  # type: ignore[dict-item]
    return restart_group_of(decoder(Pod)(text))


def test_pods_that_restart_together_have_that_in_common_and_with_their_successors() -> None:
    """New Jobs and StatefulSets may create these. Another replica, another run, another namespace is another group."""
    leader, worker = lws(leader=True), lws(leader=False)
    replica = {**worker, "labels": {**worker["labels"], "leaderworkerset.sigs.k8s.io/group-index": "1"}}  # type: ignore[dict-item]
    assert restarts_with(leader) == restarts_with(worker) == "ml/leaderworkerset/serve/0"
    assert restarts_with(replica) == "ml/leaderworkerset/serve/1"
    assert restarts_with(JOBSET) == f"ml/jobset/train/{JOBSET_UID}"
    assert (
        restarts_with(of_jobset("s1", "j1"))
        == restarts_with(of_jobset("s1", "j2"))
        != restarts_with(of_jobset("s2", "j2"))
    )
    assert restarts_with(kubeflow("PyTorchJob")) == "ml/kubeflow/bert/k1"
    assert restarts_with({**leader, "namespace": "other"}) == "other/leaderworkerset/serve/0"


@pytest.mark.parametrize(
    "metadata",
    [JOB, RAY, kueue("2"), kubeflow("MPIJob"), kubeflow("ReplicaSet"), {"labels": JOBSET_WORDS}, owned("Job", "j1")],
)
def test_others_restart_alone_or_in_a_way_that_is_not_known(metadata: object) -> None:
    """Labels without the controller that goes with them say nothing."""
    assert restarts_with(metadata) == ""
