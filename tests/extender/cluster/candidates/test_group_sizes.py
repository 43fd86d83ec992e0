"""A group whose pods do not say how many they are is as large as its Job, JobSet or PodGroup says, once that has been read."""

from __future__ import annotations

import pytest

from extender.cluster.caches.group_sizes import GroupSizes, SizesOfKind
from extender.cluster.objects.group_sizes import BatchJob, JobSpec
from extender.cluster.objects.kinds import Node, ObjectMeta, Pod
from extender.cluster.objects.versions import Listing
from extender.cluster.state import ClusterState
from tests.extender.builders import cluster, gpus, pod
from tests.extender.cluster.candidates.test_groups import hall, in_rack, passing
from topology.annotations import keys
from topology.request.domains import Level

KEY = ("ml", "job", "train", "j1")
BY_RACK = {keys.GROUP_AFFINITY: "rack"}


def job(pods: int = 3, name: str = "train", uid: str = "j1") -> BatchJob:
    """Build a Job with indexes."""
    return BatchJob(ObjectMeta(name=name, namespace="ml", uid=uid), JobSpec(pods, pods, "Indexed"))


def worker(name: str, on: str | None = None, **asks: str) -> Pod:
    """Build a pod of the Job that takes a whole node."""
    labels = {
        "batch.kubernetes.io/job-name": "train",
        "batch.kubernetes.io/controller-uid": "j1",
        "batch.kubernetes.io/job-completion-index": name,
    }
    wants = BY_RACK | {f"{keys.USER_PREFIX}{key.replace('_', '-')}": text for key, text in asks.items()}
    if on is None:
        return pod(name, 8, wants=wants, labels=labels)
    placed = gpus(on, *range(8))
    return pod(name, 8, on=on, placed=placed, phase="Running", terminated=False, wants=wants, labels=labels)


def told(*objects: Node | Pod, jobs: tuple[BatchJob, ...] = ()) -> tuple[ClusterState, SizesOfKind]:
    """Return a cluster that has read these Jobs, and what hears of further ones."""
    state = cluster(*objects)
    kind = SizesOfKind(state.indexes.groups.sizes)
    kind.replaced(jobs)
    return state, kind


@pytest.mark.parametrize(("jobs", "rack"), [((job(3),), "a"), ((), "b"), ((job(3, uid="j0"),), "b")])
def test_the_first_pod_goes_where_there_is_room_for_the_others(jobs: tuple[BatchJob, ...], rack: str) -> None:
    """It is there alone. As long as nobody has seen its Job, and not an earlier one of that name, it counts alone."""
    state, _ = told(*hall(a=4, b=2), worker("0"), jobs=jobs)
    assert {name[0] for name in passing(state, worker("0"))} == {rack}


def test_what_the_pod_says_goes_first() -> None:
    """Somebody wrote it for us."""
    state, _ = told(*hall(a=4, b=2), worker("0", group_size="2"), jobs=(job(3),))
    assert {name[0] for name in passing(state, worker("0", group_size="2"))} == {"b"}


def test_room_is_kept_as_soon_as_the_size_is_read() -> None:
    """The pods that there are have all been placed before, so nothing else speaks of more to come."""
    state, kind = told(in_rack("a1", by="0"), *hall(b=2), in_rack("a2"), in_rack("a3"), worker("0", "a1"))

    def kept() -> int:
        other = ("ml", "gputopo", "bert", "")
        return state.indexes.groups.reserved(other, 8, lambda uid: None, (), lambda created: 0.0)[Level.RACK, "a"]

    assert kept() == 0
    kind.changed(job(3))
    assert kept() == 2
    kind.changed(job(2))
    assert kept() == 1
    kind.deleted(job(2))
    assert kept() == 0


@pytest.mark.parametrize("way", ["deleted", "unread", "listed without", "of a size that says nothing"])
def test_the_size_of_an_object_that_says_it_no_more_is_forgotten(way: str) -> None:
    """Nothing stays of it; what others say does."""
    heard: list[object] = []
    sizes = GroupSizes(heard.append)
    kind = SizesOfKind(sizes)
    kind.replaced([job(3), job(2, "other", "j2")])
    assert sizes.by_group == {KEY: 3, ("ml", "job", "other", "j2"): 2}
    match way:
        case "deleted":
            kind.deleted(job(3))
        case "unread":
            kind.unread(job(3).metadata, gone=False)
        case "listed without":
            kind.replaced([job(2, "other", "j2")], Listing("8", (job(3).metadata,)))
        case _:
            kind.changed(job(0))
    assert sizes.by_group == {("ml", "job", "other", "j2"): 2}
    assert heard.count(KEY) == 2 and len(heard) == 3
    assert len(kind._groups) == 1


def test_an_object_of_the_same_name_is_another_group() -> None:
    """It was made anew."""
    sizes = GroupSizes(lambda key: None)
    kind = SizesOfKind(sizes)
    kind.changed(job(3))
    kind.changed(job(4, uid="j9"))
    assert sizes.by_group == {("ml", "job", "train", "j9"): 4}
