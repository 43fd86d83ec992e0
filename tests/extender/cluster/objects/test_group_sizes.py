"""How many pods a group has, as the object says that makes it: named as its pods name it.

JobSets and Jobs are tried with their real controllers too (`tests/cluster/neighbours`). The others are from their sources.
"""

from __future__ import annotations

import msgspec
import pytest

from extender.cluster.objects.group_sizes import (
    ROWS,
    BatchJob,
    CoschedulingPodGroup,
    GroupMaker,
    JobSet,
    PodGroup,
    VolcanoPodGroup,
)
from extender.kubernetes.documents import decoder
from topology.request.domains import GroupName

Json = dict[str, object]


def job(completions: int | None = 4, parallelism: int | None = 4, mode: str = "Indexed") -> Json:
    """Return the spec of a Job, with more in it than is read."""
    template = {"spec": {"containers": [{"name": "main"}]}}
    return {"parallelism": parallelism, "completions": completions, "completionMode": mode, "template": template}


def jobs(replicas: int, pods: int, **more: str) -> Json:
    """Return one of the parts of a JobSet."""
    return {"name": "any", "replicas": replicas, "template": {"spec": job(pods, pods)}, **more}


def gang(count: int) -> Json:
    """Return the spec of a PodGroup of kube-scheduler's."""
    return {"schedulingPolicy": {"gang": {"minCount": count}}}


def said(kind: type[GroupMaker], spec: Json) -> list[GroupName]:
    """Return what an object says as the API server would send it."""
    metadata = {"name": "train", "namespace": "ml", "uid": "u1", "resourceVersion": "7"}
    return list(decoder(kind)(msgspec.json.encode({"metadata": metadata, "spec": spec})).groups())


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        (BatchJob, job(), [GroupName("job", "train", "u1", 4)]),
        (BatchJob, job(completions=2), [GroupName("job", "train", "u1", 2)]),
        (BatchJob, job(completions=9), [GroupName("job", "train", "u1", 4)]),
        (BatchJob, job(parallelism=None), [GroupName("job", "train", "u1", 1)]),
        (BatchJob, job(mode="NonIndexed"), []),
        (JobSet, {"replicatedJobs": [jobs(1, 1), jobs(2, 4)]}, [GroupName("jobset", "train", "u1", 9)]),
        (
            JobSet,
            {"replicatedJobs": [jobs(3, 1, groupName="a"), jobs(2, 4, groupName="default")]},
            [GroupName("jobset", "train/a", "u1", 3), GroupName("jobset", "train", "u1", 8)],
        ),
        (PodGroup, gang(3), [GroupName("kube-scheduler", "train", size=3)]),
        (PodGroup, {"schedulingPolicy": {"basic": {}}}, [GroupName("kube-scheduler", "train")]),
        (VolcanoPodGroup, {"minMember": 3, "queue": "q"}, [GroupName("volcano", "train", size=3)]),
        (CoschedulingPodGroup, {"minMember": 3}, [GroupName("coscheduling", "train", size=3)]),
    ],
)
def test_each_kind_says_its_groups_and_how_many_pods_they_have(
    kind: type[GroupMaker], spec: Json, expected: list[GroupName]
) -> None:
    """A Job has its pods at a time; a JobSet counts also the Jobs that are made later."""
    assert said(kind, spec) == expected


def test_every_row_speaks_for_its_source() -> None:
    """What it reads is of the groups for which it is read."""
    specs: dict[type[GroupMaker], Json] = {BatchJob: job(), JobSet: {"replicatedJobs": [jobs(1, 2)]}}
    for row in ROWS:
        assert {each.source for each in said(row.kind, specs.get(row.kind, {"minMember": 2}))} == {row.source}
