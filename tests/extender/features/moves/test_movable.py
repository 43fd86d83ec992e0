"""Owners say which pods may move; the rest of the cluster may still forbid it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import msgspec
import pytest
from msgspec.structs import replace

from extender.cluster.caches.budgets import Budgets, BudgetsOfPods
from extender.cluster.candidates.groups import Groups
from extender.cluster.candidates.holds import Held
from extender.cluster.objects.budgets import PodDisruptionBudget
from extender.cluster.objects.gpu_pods import GpuPod, priority_of
from extender.cluster.objects.kinds import AffinityRules, ObjectMeta, OwnerReference, Pod
from extender.cluster.objects.movable_pods import MovablePods
from extender.cluster.state import ClusterState
from extender.features.moves.jobs import JobName, Jobs, KubernetesJob
from extender.features.moves.movable import (
    PODS_AT_ONCE,
    SWITCH_SECONDS,
    Movable,
    Stays,
    cost_seconds,
    may_go_together,
    movable_pods,
)
from tests.extender.builders import PAIRS, at, budget, cluster, gpus, node, pod
from tests.extender.mig import cut, cut_node, slice_pod
from tests.extender.shares import share, sharing, sharing_node
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.effort import finish
from topology.node.status import GpuStatus, NodeGpuStatus

LABELS = {"app": "serve"}
GROUP = {keys.GROUP: "g", keys.GROUP_SIZE: "2"}
NOW = at(600.0)
PATIENCE_SECONDS = 600.0
IGNORES = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


def movable(
    name: str = "serve",
    *positions: int,
    owner: str = "ReplicaSet",
    wants: Mapping[str, str] | None = None,
    priority: int = 0,
) -> Pod:
    """Return a pod on a node that may move, and was created ten minutes ago."""
    held = gpus("a", *(positions or (0,)), machine_name=PAIRS)
    said = {keys.MOVABLE: "true", **(wants or {})}
    built = pod(name, len(held), on="a", placed=held, phase="Running", wants=said, priority=priority, labels=LABELS)
    owners = [OwnerReference("its-owner", controller=True, kind=owner, name="it")] if owner else None
    return replace(built, metadata=replace(built.metadata, owner_references=owners))


def job_of(spec: Mapping[str, object], owner: str = "") -> KubernetesJob:
    """Return the Job that `movable` names as the owner."""
    owners = [{"kind": owner, "uid": "of-it", "controller": True}] if owner else []
    return msgspec.convert({"metadata": {"uid": "its-owner", "ownerReferences": owners}, "spec": spec}, KubernetesJob)


def without_word(item: Pod) -> dict[str, str]:
    """Return the annotations of a pod, but for the one by which it may move."""
    return {key: text for key, text in (item.metadata.annotations or {}).items() if key != keys.MOVABLE}


class CountingBudgets(Budgets):
    """Counts how often it is asked."""

    lookups = 0

    def of(self, pod: ObjectMeta) -> list[PodDisruptionBudget]:
        self.lookups += 1
        return super().of(pod)


def on_a_node(*pods: Pod) -> ClusterState:
    return cluster(node("a", PAIRS), pod("waits", 2), *pods, budgets=[])


def read(state: ClusterState, jobs: Jobs | None = None) -> Movable:
    budgets, jobs = BudgetsOfPods(state.budgets), jobs or Jobs()
    return finish(movable_pods(state, priority_of(pod_of(state, "waits").pod), NOW, PATIENCE_SECONDS, budgets, jobs))


def pod_of(state: ClusterState, name: str) -> GpuPod:
    gpu_pod = state.pods.get(name)
    assert gpu_pod
    return gpu_pod


def test_a_pod_moves_if_its_owner_says_so() -> None:
    """One that says nothing, or `false`, is not even counted."""
    silent = movable("silent", 1, wants={keys.MOVABLE: "false"})
    seen = read(on_a_node(movable(), silent))
    assert [(moving.wanted.pod.metadata.name, moving.node, moving.held.gpus) for moving in seen.pods] == [
        ("serve", "a", 1)
    ]
    assert not seen.stay


@pytest.mark.parametrize(
    ("stays", "reason"),
    [
        (movable(priority=1), Stays.HIGHER_PRIORITY),
        (movable(owner=""), Stays.NO_CONTROLLER),
        (movable(owner="DaemonSet"), Stays.NO_CONTROLLER),
        (movable(owner="Node"), Stays.NO_CONTROLLER),
        (movable(wants={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}), Stays.FORBIDDEN),
        (movable(wants={"karpenter.sh/do-not-disrupt": "true"}), Stays.FORBIDDEN),
        (movable(wants={keys.RESTART_COST: "soon"}), Stays.UNREADABLE),
    ],
    ids=lambda value: value.name if isinstance(value, Stays) else "",
)
def test_other_words_keep_a_movable_pod_where_it_is(stays: Pod, reason: Stays) -> None:
    """And the reason is counted."""
    seen = read(on_a_node(stays))
    assert (seen.pods, seen.stay) == ([], {reason: 1})


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (job_of({}), Stays.JOB),
        (job_of({"podFailurePolicy": {"rules": [IGNORES]}}), None),
        (job_of({"podFailurePolicy": {"rules": [IGNORES]}}, owner="JobSet"), Stays.WHOLE),
        (job_of({"podFailurePolicy": {"rules": [IGNORES]}}, owner="CronJob"), None),
        (None, Stays.UNREAD_JOB),
    ],
    ids=["counts", "ignores", "of-a-job-set", "of-a-cron-job", "unread"],
)
def test_a_pod_of_a_job_moves_only_if_the_job_ignores_evictions(
    job: KubernetesJob | None, reason: Stays | None
) -> None:
    """And the Job is no part of anything that restarts as a whole."""
    state, jobs = on_a_node(movable(owner="Job")), Jobs()
    jobs.learn(JobName("ml", "it", "its-owner"), job, NOW.monotonic)
    seen = read(state, jobs)
    assert (len(seen.pods), dict(seen.stay)) == ((0, {reason: 1}) if reason else (1, {}))


@pytest.mark.parametrize(
    ("owner", "label", "reason"),
    [
        ("PyTorchJob", "", Stays.WHOLE),
        ("RayCluster", "ray.io/cluster", Stays.WHOLE),
        ("StatefulSet", "jobset.sigs.k8s.io/jobset-name", Stays.WHOLE),
        ("MPIJob", "training.kubeflow.org/job-name", Stays.WHOLE),
        ("TrainingRun", "training.kubeflow.org/job-name", Stays.WHOLE),
        ("TrainingRun", "", Stays.UNKNOWN_OWNER),
        ("StatefulSet", "", None),
        ("ReplicationController", "", None),
    ],
)
def test_no_single_pod_moves_of_an_owner_that_may_restart_all(owner: str, label: str, reason: Stays | None) -> None:
    """In a way that is not known here, also where no other pod of it is there; owners of unknown kinds may do so."""
    stays = movable(owner=owner)
    if label:
        stays = replace(stays, metadata=replace(stays.metadata, labels=LABELS | {label: "it"}))
    seen = read(on_a_node(stays))
    assert (len(seen.pods), dict(seen.stay)) == ((0, {reason: 1}) if reason else (1, {}))


REPLICA = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "0"}
JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "train"}
TRAINING = {"training.kubeflow.org/job-name": "bert"}


def labelled(item: Pod, labels: Mapping[str, str], restart_policy: str = "") -> Pod:
    spec = replace(item.spec, restart_policy=restart_policy) if restart_policy else item.spec
    return replace(item, metadata=replace(item.metadata, labels={**labels}), spec=spec)


def of_replica(count: int, **said: str) -> list[Pod]:
    """Return the pods of a replica of a LeaderWorkerSet; the last one says something else."""
    words: list[dict[str, str]] = [*([{}] * (count - 1)), said]
    return [
        labelled(movable(f"p{number}", number, owner="StatefulSet", wants=more), REPLICA)
        for number, more in enumerate(words)
    ]


def test_pods_that_restart_together_may_move_together() -> None:
    """Each at its cost, and in its group; a ninth pod keeps all where they are."""
    seen = read(on_a_node(*of_replica(3)))
    assert [(moving.uid, moving.restart_group) for moving in seen.pods] == [
        (f"p{number}", "ml/leaderworkerset/serve/0") for number in range(3)
    ]
    assert all(moving.cost_gpu_seconds == 600 + SWITCH_SECONDS and moving.group for moving in seen.pods)
    ninth = labelled(pod("p8", 1, on="b", wants={keys.MOVABLE: "true"}), REPLICA)
    ninth = replace(
        ninth, metadata=replace(ninth.metadata, owner_references=of_replica(1)[0].metadata.owner_references)
    )
    assert read(on_a_node(*of_replica(8))).stay == {}
    seen = read(on_a_node(*of_replica(8), ninth))
    assert (seen.pods, seen.stay) == ([], {Stays.LARGE: 8})


@pytest.mark.parametrize(
    ("last", "stays"),
    [
        (of_replica(2, **{keys.MOVABLE: "false"})[-1], {Stays.HALF: 1}),
        (of_replica(2, **{"karpenter.sh/do-not-disrupt": "true"})[-1], {Stays.FORBIDDEN: 2}),
        (of_replica(2, **{keys.GROUP: "another", keys.GROUP_AFFINITY: "required-rack"})[-1], {Stays.GROUP: 2}),
        (replace(of_replica(2)[-1], spec=replace(of_replica(2)[-1].spec, node_name=None)), {Stays.HALF: 1}),
    ],
    ids=["not-movable", "forbidden", "requires-a-rack", "waits"],
)
def test_none_of_them_moves_if_one_may_not(last: Pod, stays: dict[Stays, int]) -> None:
    """Or if one of them waits: it would restart as well."""
    first, _ = of_replica(2)
    seen = read(on_a_node(first, last))
    assert (seen.pods, dict(seen.stay)) == ([], stays)


def test_none_of_them_moves_that_are_grouped_with_others() -> None:
    """The group would be only partly there."""
    grouped = {keys.GROUP: "g", keys.GROUP_SCOPE: "namespace"}
    stranger = movable("stranger", 4, wants=grouped)
    assert read(on_a_node(*of_replica(1, **grouped), stranger)).stay == {Stays.GROUP: 2}


@pytest.mark.parametrize(("policy", "count"), [("OnFailure", 1), ("Always", 1), ("Never", 0)])
def test_a_pod_of_a_training_job_moves_unless_its_end_may_end_the_job(policy: str, count: int) -> None:
    """Kubeflow gives a pod this policy also where the exit code decides."""
    seen = read(on_a_node(labelled(movable(owner="PyTorchJob"), TRAINING, policy)))
    assert (len(seen.pods), seen.stay[Stays.NEVER]) == (count, 1 - count)


def test_a_large_group_is_not_looked_at_for_each_of_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant chooses how many pods are in it, and how many of them restart alone."""
    state = on_a_node(*of_replica(2))
    monkeypatch.setattr("extender.features.moves.movable.MOST_PEERS", 0)
    monkeypatch.delattr(Groups, "peers")
    assert read(state).stay == {Stays.GROUP: 2}


def test_pods_of_a_job_set_move_if_their_jobs_ignore_evictions() -> None:
    """Without the labels of the JobSet nobody knows which pods restart with them."""
    jobs, ignores = Jobs(), {"podFailurePolicy": {"rules": [IGNORES]}}
    item = movable(owner="Job")
    for spec, count in ((ignores, 1), ({}, 0)):
        jobs.learn(JobName("ml", "it", "its-owner"), job_of(spec, owner="JobSet"), NOW.monotonic)
        assert len(read(on_a_node(labelled(item, JOB_SET)), jobs).pods) == count
        assert read(on_a_node(item), jobs).pods == []


def test_the_configuration_names_pods_that_may_move_and_kinds_that_replace_one_pod() -> None:
    """A pod that says `false` stays, and so does one of an owner that may restart all of its pods."""
    silent = movable("silent", 0, owner="CloneSet")
    silent = replace(silent, metadata=replace(silent.metadata, annotations=without_word(silent)))
    state = on_a_node(
        silent,
        movable("refuses", 1, owner="CloneSet", wants={keys.MOVABLE: "false"}),
        movable("trains", 2, owner="PyTorchJob"),
    )
    assert read(state).stay == {Stays.WHOLE: 1}
    state.movable = MovablePods(owner_kinds=("CloneSet", "PyTorchJob"))
    seen = read(state)
    assert ([moving.uid for moving in seen.pods], seen.stay) == (["silent"], {Stays.WHOLE: 1})


def test_only_jobs_that_matter_are_to_be_read() -> None:
    """Not that of a pod that stays for another reason."""
    jobs = Jobs()
    read(on_a_node(movable(owner="Job", priority=1)), jobs)
    assert jobs.to_read(1) == []
    read(on_a_node(movable(owner="Job")), jobs)
    assert jobs.to_read(1) == [JobName("ml", "it", "its-owner")]


def test_a_pod_of_a_group_stays_and_one_whose_affinity_is_not_planned() -> None:
    """A group restarts as a whole; affinity is not read here."""
    first, second = (movable(f"g-{number}", number, wants=GROUP) for number in range(2))
    tied = movable("tied", 2)
    tied = replace(tied, spec=replace(tied.spec, affinity=AffinityRules()))
    assert read(on_a_node(first, second, tied)).stay == {Stays.GROUP: 2, Stays.CONSTRAINTS: 1}


def test_a_pod_stays_whose_gpu_somebody_else_may_have_too() -> None:
    """Its GPU would not be free without it."""
    assert read(on_a_node(movable("one", 0), pod("two", 1, on="a", placed=gpus("a", 0, machine_name=PAIRS)))).stay == {
        Stays.UNKNOWN_GPUS: 1
    }


def test_a_pod_stays_whose_gpu_is_sick() -> None:
    """Its GPU would not be free without it; the other GPU does not help a pod that wants both."""
    sick = node("a", PAIRS, sick=gpus("a", 1, machine_name=PAIRS))
    state = cluster(sick, pod("waits", 2), movable("one", 0), movable("two", 1, 2), budgets=[])
    seen = read(state)
    assert [moving.uid for moving in seen.pods] == ["one"]
    assert seen.stay == {Stays.UNFIT_GPUS: 1}


def with_owner(item: Pod) -> Pod:
    """Return the pod as one that may move, and was created ten minutes ago."""
    annotations = {**(item.metadata.annotations or {}), keys.MOVABLE: "true"}
    owners = [OwnerReference("its-owner", controller=True, kind="ReplicaSet", name="it")]
    return replace(item, metadata=replace(item.metadata, annotations=annotations, owner_references=owners))


def test_a_pod_with_a_share_moves_at_the_cost_of_its_part_of_the_gpu() -> None:
    """Ten of 40 GiB. It holds its share alone, and not the GPU that it shares."""
    (gpu,) = gpus("n1", 0)
    mine, other = with_owner(sharing("mine", gpu, 10)), sharing("other", gpu, 20)
    (moving,) = read(cluster(sharing_node(), pod("waits", 1), mine, other, budgets=[])).pods
    assert moving.held == Held(0, ((0, 10, ""),))
    assert moving.cost_gpu_seconds == (600 + SWITCH_SECONDS) * 10 / 40


def test_a_pod_with_a_slice_moves_at_the_cost_of_its_part_of_the_gpu() -> None:
    """Each of two slices is an eighth of the memory."""
    topology = cut("n1", {0: ("1g.10gb",) * 4})
    placed = tuple(each.uuid for each in topology.slices[:2])
    mine = with_owner(slice_pod("mine", "1g.10gb", 2, on="n1", placed=placed, phase="Running"))
    (moving,) = read(cluster(cut_node(topology), pod("waits", 1), mine, budgets=[])).pods
    assert moving.held == Held(0b11 << len(topology))
    assert moving.cost_gpu_seconds == (600 + SWITCH_SECONDS) * 2 / 8


def test_a_pod_stays_whose_share_nobody_can_name() -> None:
    """Its record names less than it requests."""
    (gpu,) = gpus("n1", 0)
    item = with_owner(sharing("mine", gpu, 10))
    larger = replace(item, spec=sharing("x", gpu, 20).spec)
    state = cluster(sharing_node(), pod("waits", 1), larger, budgets=[])
    assert read(state).stay == {Stays.UNKNOWN_GPUS: 1}


def test_a_pod_stays_whose_shared_gpu_is_sick() -> None:
    """Nothing of it would be free."""
    (gpu,) = gpus("n1", 0)
    node_with_claim = sharing_node(share(gpu, "mine", 10))
    sick = encode_status(NodeGpuStatus(2, (GpuStatus(gpu, healthy=False, share_gib=39),)))
    annotations = {**(node_with_claim.metadata.annotations or {}), keys.STATUS: sick}
    sick_node = replace(node_with_claim, metadata=replace(node_with_claim.metadata, annotations=annotations))
    state = cluster(sick_node, pod("waits", 1), with_owner(sharing("mine", gpu, 10)), budgets=[])
    assert read(state).stay == {Stays.UNFIT_GPUS: 1}


def ending_within(seconds: int) -> Pod:
    item = movable(f"ends-within-{seconds}", 0)
    return replace(item, spec=replace(item.spec, termination_grace_period_seconds=seconds))


def test_a_pod_stays_that_would_take_half_the_time_of_a_plan_to_end() -> None:
    """What comes after has to fit into the other half."""
    assert len(read(on_a_node(ending_within(300))).pods) == 1
    assert read(on_a_node(ending_within(301))).stay == {Stays.GRACE: 1}


def test_a_long_grace_period_costs_what_it_lasts_beyond_the_usual_one() -> None:
    """A short one saves nothing: starting takes as long."""
    for seconds, more in ((0, 0), (30, 0), (120, 90)):
        state = on_a_node(ending_within(seconds))
        assert cost_seconds(pod_of(state, f"ends-within-{seconds}"), NOW) == 600 + SWITCH_SECONDS + more


@pytest.mark.parametrize(("allowed", "one", "both"), [(0, False, False), (1, True, False), (2, True, True)])
def test_budgets_are_kept(allowed: int, one: bool, both: bool) -> None:
    """A budget that allows one eviction lets either of two pods go, and not both."""
    state = on_a_node(movable("s1", 0), movable("s2", 2))
    state.budgets.replaced([budget("b", allowed, **LABELS)])
    seen = read(state)
    assert (len(seen.pods), seen.stay[Stays.BUDGET]) == ((2, 0) if one else (0, 2))
    assert may_go_together(BudgetsOfPods(state.budgets), seen.pods) == (both or not one)


def test_a_few_pods_are_looked_at_in_one_step_however_many_budgets_their_namespace_has() -> None:
    """And the budgets of each of them once in a search: a tenant chooses how many there are."""
    state = on_a_node(*(movable(f"s{number}", number) for number in range(8)))
    counting = CountingBudgets()
    budgets = BudgetsOfPods(counting)
    steps = movable_pods(state, priority_of(pod_of(state, "waits").pod), NOW, PATIENCE_SECONDS, budgets, Jobs())
    in_steps = [0, *(counting.lookups for _ in steps), counting.lookups]
    assert max(later - before for before, later in pairwise(in_steps)) == PODS_AT_ONCE
    may_go_together(budgets, read(state).pods)
    assert counting.lookups == 8


def test_a_pod_with_two_budgets_stays() -> None:
    """The Eviction API refuses it, whatever they allow."""
    state = on_a_node(movable())
    state.budgets.replaced([budget("b1", 1, **LABELS), budget("b2", 1, **LABELS)])
    assert read(state).stay == {Stays.BUDGETS: 1}


@pytest.mark.parametrize(
    ("wants", "lost_seconds"),
    [
        ({}, 600),
        ({keys.RESTART_COST: "2m"}, 120),
        ({keys.RESTART_COST: "1h"}, 600),
        ({keys.CHECKPOINT_INTERVAL: "4m"}, 120),
        ({keys.CHECKPOINT_INTERVAL: "10m", keys.RESTART_COST: "1m"}, 60),
    ],
    ids=["all-of-ten-minutes", "restart-cost", "never-more-than-its-age", "half-an-interval", "the-smaller-one"],
)
def test_a_move_costs_the_work_that_is_lost_and_the_switch(wants: Mapping[str, str], lost_seconds: int) -> None:
    """The pod began ten minutes ago."""
    state = on_a_node(movable(wants=wants))
    assert cost_seconds(pod_of(state, "serve"), NOW) == lost_seconds + SWITCH_SECONDS
