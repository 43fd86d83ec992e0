"""Real kube-schedulers bind what the queue has planned and opened, also where they know nothing of our extender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from benchmarks.simulated.fleet import fleet
from tests.cluster.gpu_cluster import GpuCluster, at_work, wants
from tests.cluster.installation import Installation
from tests.cluster.judgement import assert_invariants
from tests.cluster.objects import PODS, Json
from tests.cluster.polling import eventually
from tests.cluster.queueing import OURS, PLAIN, SETTINGS, gang, named
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE, SCHEDULER_NAME
from topology.annotations import keys

pytestmark = [pytest.mark.usefixtures("kubelets"), pytest.mark.slow]

THEIRS = {"name": "kueue.x-k8s.io/admission"}


@pytest.fixture(scope="module", autouse=True)
def rights(installation: Installation) -> Iterator[None]:
    """Give the extender what the chart gives it where the queue is enabled."""
    with installation.upgraded("extender.config.queue.enabled=true"):
        yield


@pytest.fixture(params=[SCHEDULER_NAME, PLAIN])
def scheduler(request: pytest.FixtureRequest) -> str:
    """Return the scheduler of all pods."""
    name: str = request.param
    return name


@pytest.fixture
def queue(installation: Installation) -> Iterator[GpuCluster]:
    """Lend the installed control plane with an extender that plans, and both schedulers at work."""
    try:
        with at_work(installation, SETTINGS) as lent:
            installation.plane.start_scheduler({"profiles": [{"schedulerName": PLAIN}]})
            yield lent
            assert_invariants(installation.plane.admin, lent.told())
    finally:
        sweep(installation.plane.admin, keep=[NAMESPACE])


def of_job(pod: Json) -> Json:
    """Return the pod as one that a Job has created; no controller runs here."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-of-train", "controller": True}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [job]}}


def gates(queue: GpuCluster, *names: str) -> list[list[Json]]:
    """Return the gates of pods."""
    return [queue.pod(name)["spec"].get("schedulingGates", []) for name in names]


def all_bound(queue: GpuCluster, *names: str) -> bool:
    """Whether these pods are bound."""
    return all(queue.node_of(name) for name in names)


def planned(queue: GpuCluster, *names: str) -> list[str]:
    """Return where the queue has sent pods."""
    return [queue.pod(name)["metadata"]["annotations"][keys.PLANNED] for name in names]


def says_why(queue: GpuCluster, name: str, words: str) -> bool:
    """Whether an event of a pod says in these words why it waits."""
    return any(
        event["involvedObject"]["name"] == name and words in event["message"] for event in queue.events("GPUPodQueued")
    )


def test_a_gang_is_bound_where_it_is_planned_and_only_when_it_is_complete(queue: GpuCluster, scheduler: str) -> None:
    """Four pods of four GPUs take two nodes of eight. Three of them wait with their gates."""
    queue.join(*fleet({"hgx-h100": 2}))
    *first, last = gang("train", 4, 4, scheduler)
    queue.submit(*first)
    for name in named(first):
        eventually(partial(says_why, queue, name, "1 of the 4 pods of its gang are missing"))
    assert gates(queue, *named(first)) == [[OURS]] * 3
    queue.submit(last)
    names = named([*first, last])
    eventually(partial(all_bound, queue, *names))
    nodes = [queue.node_of(name) for name in names]
    assert nodes == planned(queue, *names)
    assert sorted(Counter(nodes).values()) == [2, 2]
    gpus = [gpu for name in names for gpu in queue.placement(name).containers["main"]]
    assert len({*gpus}) == len(gpus) == 16, "records come with the opened gates, or with the Binding"


def test_a_gang_without_room_waits_whole_and_starts_when_a_pod_ends(queue: GpuCluster, scheduler: str) -> None:
    """Half of it would fit. An event says why it waits."""
    queue.join(*fleet({"hgx-h100": 2}))
    queue.submit(wants("before", 8))
    eventually(partial(queue.is_running, "before"))
    names = named(pods := gang("train", 2, 8, scheduler))
    queue.submit(*pods)
    for name in names:
        eventually(partial(says_why, queue, name, "there is no room for its gang now"))
    assert gates(queue, *names) == [[OURS]] * 2
    queue.complete("before")
    eventually(partial(all_bound, queue, *names))
    assert [queue.node_of(name) for name in names] == planned(queue, *names)


def test_gates_of_others_stay_until_their_owners_remove_them(queue: GpuCluster, scheduler: str) -> None:
    """One member is behind another's gate: its whole gang waits."""
    queue.join(*fleet({"hgx-h100": 2}))
    free, held = gang("train", 2, 8, scheduler)
    held["spec"]["schedulingGates"].append(THEIRS)
    queue.submit(free, held)
    eventually(partial(says_why, queue, "train-1", "scheduling gates of others come first"))
    eventually(partial(says_why, queue, "train-0", "1 of the 2 pods of its gang are missing"))
    assert gates(queue, "train-0", "train-1") == [[OURS], [OURS, THEIRS]]
    queue.api.patch(f"{PODS}/train-1", {"spec": {"schedulingGates": [OURS]}})
    eventually(partial(all_bound, queue, "train-0", "train-1"))


def test_a_half_gang_ends_and_starts_again_whole(queue: GpuCluster) -> None:
    """A member is lost, and somebody else has its node. The other one is evicted after a minute, with the chart's rights."""
    queue.join(*fleet({"hgx-h100": 2}))
    first, lost, *successors = [of_job(pod) for pod in gang("train", 2, 8, PLAIN) + gang("again", 2, 8, PLAIN)]
    for pod in successors:
        pod["metadata"]["annotations"][keys.GROUP] = "train"
    queue.submit(first, lost)
    eventually(partial(all_bound, queue, *named([first, lost])))
    queue.api.delete(f"{PODS}/train-1")
    queue.submit(wants("other", 8))
    eventually(partial(queue.is_running, "other"))
    queue.submit(successors[0])
    eventually(lambda: queue.events("GPUPodEvicted"), 240)
    assert [event["involvedObject"]["name"] for event in queue.events("GPUPodEvicted")] == ["train-0"]
    assert queue.extender.metric('queue_evictions_total{answer="evicted",cause="half-gang"}') == 1
    assert gates(queue, "again-0") == [[OURS]]
    queue.submit(successors[1])
    queue.complete("other")
    eventually(partial(all_bound, queue, *named(successors)))


def test_one_of_two_extenders_plans(queue: GpuCluster, installation: Installation) -> None:
    """When it is killed, the other one takes its Lease and plans what comes then."""
    queue.join(*fleet({"hgx-h100": 2}))
    beside = installation.extender(SETTINGS)
    with beside.running():
        first, second = (gang(name, 2, 8, PLAIN) for name in ("first", "second"))
        queue.submit(*first)
        eventually(partial(all_bound, queue, *named(first)))
        planners = {extender: extender.metric("queue_gangs_total") or 0.0 for extender in (queue.extender, beside)}
        assert sorted(planners.values()) == [0, 1]
        planner, other = sorted(planners, key=planners.__getitem__, reverse=True)
        planner.kill()
        for name in named(first):
            queue.complete(name)
        queue.submit(*second)
        eventually(partial(all_bound, queue, *named(second)))
        assert other.metric("queue_gangs_total") == 1
        planner.run()
