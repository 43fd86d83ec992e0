"""Pods move on a real control plane: a kube-scheduler that knows no extender, the Eviction API, budgets, ReplicaSets and Jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Final

import pytest

from benchmarks.simulated.fleet import SimulatedNode, fleet, gpu_pod, share_pod
from extender.config.defaults import QUEUE_LEASE
from extender.features.moves.events import WAITS
from extender.features.moves.record import decode
from extender.kit.clock import Instant
from extender.kubernetes.evictor import EVICTED
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.installation import Installation
from tests.cluster.judgement import assert_invariants
from tests.cluster.objects import GPU, PODS, Json
from tests.cluster.polling import eventually
from tests.cluster.queueing import OURS, PLAIN
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE
from topology.annotations import keys
from topology.annotations.records import decode_placement

pytestmark = [pytest.mark.usefixtures("kubelets"), pytest.mark.slow]

NODES: Final = 12
GPUS_OF_NODE: Final = 8
ROOM: Final = 4
"""GPUs of each pod that wants room."""
SETTINGS: Final = {
    "queue": {"enabled": True},
    "reconcile": {"orphanAfter": "10s"},
    "moves": {"enabled": True, "after": "0s", "betweenMoves": "0s", "perHour": 1000, "namespacePerHour": 1000},
}
REPLICA_SETS: Final = "/apis/apps/v1/namespaces/default/replicasets"
LEASES: Final = "/apis/coordination.k8s.io/v1/leases"
JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MOVABLE: Final = {keys.MOVABLE: "true", keys.RESTART_COST: "1m"}
FLEETS, LONG = 2, 100


@pytest.fixture(scope="module", autouse=True)
def rights(installation: Installation) -> Iterator[None]:
    """Give the extender what the chart gives it where pods may move, and let controllers create pods and count budgets."""
    with installation.upgraded("extender.config.queue.enabled=true", "extender.config.moves.enabled=true"):
        controllers = installation.plane.start_controllers("replicaset-controller,disruption-controller,job-controller")
        try:
            yield
        finally:
            controllers.stop()


@contextmanager
def moving(installation: Installation) -> Iterator[GpuCluster]:
    """Lend the control plane with an extender that nobody asks, and a kube-scheduler that knows none."""
    extender = installation.extender(SETTINGS)
    lent = GpuCluster(installation.plane, extender)
    try:
        extender.start()
        installation.plane.start_scheduler({"profiles": [{"schedulerName": PLAIN}]})
        extender.wait_ready()
        yield lent
        assert_invariants(installation.plane.admin, lent.told())
    finally:
        installation.plane.stop_schedulers()
        extender.stop()
        for path in (REPLICA_SETS, JOBS, BUDGETS):
            installation.plane.admin.delete(path, gracePeriodSeconds="0", propagationPolicy="Background")
        sweep(installation.plane.admin, keep=[NAMESPACE])


class Fleet:
    """Twelve nodes full of small pods of ReplicaSets, of which some have left: one to three GPUs of each node are free."""

    def __init__(self, cluster: GpuCluster, seed: int) -> None:
        self.cluster, self.random = cluster, Random(f"moves {seed}")
        self._reports = 0
        self.fixed: set[str] = set()
        """ReplicaSets whose pods may not be evicted: their owners do not say so, or their budgets forbid it."""
        self.cluster.join(*fleet({"hgx-h100": NODES}))
        self._left = {self._replica_set(number) for number in range(NODES * GPUS_OF_NODE * 2 // 3)}
        """ReplicaSets that are to have a pod."""
        # A pod that moved for another one returns later, and would take a GPU that becomes free below.
        eventually(lambda: self._all_run() and cluster.extender.metric("move_plans_under_way") == 0, 300)
        assert not self.free()
        for node in [f"hgx-h100-{number}" for number in range(NODES)]:
            self._fragment(node, self.random.randint(1, 3))
        eventually(self._all_run, 120)
        assert len(self.free()) == NODES
        self.before = self.pods()

    def _all_run(self) -> bool:
        """Whether each ReplicaSet that is to have a pod has one, which runs, and there is no other pod."""
        pods = self.cluster.api.list(PODS)
        stay = all(_runs(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)
        return stay and Counter(pod["metadata"]["labels"]["app"] for pod in pods) == Counter(self._left)

    def _replica_set(self, number: int) -> str:
        """Create one with a pod of one or two GPUs, which the queue places."""
        name, gpus = f"rs{number}", 1 + number % 2
        kind = self.random.choice(("movable", "movable", "movable", "counted", "silent", "forbidden"))
        if kind in ("silent", "forbidden"):
            self.fixed.add(name)
        labels, annotations = {"app": name}, {} if kind == "silent" else MOVABLE
        template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": _gated(gpus)["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        self.cluster.api.post(REPLICA_SETS, {"metadata": {"name": name}, "spec": spec})
        if kind in ("counted", "forbidden"):
            most = {"maxUnavailable": 1 if kind == "counted" else 0}
            self.cluster.api.post(BUDGETS, {"metadata": {"name": name}, "spec": {**most, "selector": spec["selector"]}})
        return name

    def _fragment(self, node: str, free: int) -> None:
        there = [(name, pod) for name, pod in self.pods().items() if pod["spec"]["nodeName"] == node]
        self.random.shuffle(there)
        free = max(free, min(_gpus(pod) for _, pod in there))
        for name, pod in there:
            if (gpus := _gpus(pod)) <= free:
                self._remove(name)
                free -= gpus

    def _remove(self, name: str) -> None:
        self.fixed.discard(name)
        self._left.discard(name)
        self.cluster.api.patch(f"{REPLICA_SETS}/{name}", {"spec": {"replicas": 0}})

    def pods(self) -> dict[str, Json]:
        """Return ReplicaSet → its running pod."""
        pods = self.cluster.api.list(PODS)
        owned = {pod["metadata"]["labels"]["app"]: pod for pod in pods if _runs(pod) and pod["metadata"].get("labels")}
        return {name: pod for name, pod in owned.items() if "deletionTimestamp" not in pod["metadata"]}

    def per_owner(self) -> Counter[str]:
        """Return ReplicaSet → its pods, running or waiting."""
        pods = self.cluster.api.list(PODS)
        return Counter(pod["metadata"]["labels"]["app"] for pod in pods if pod["metadata"].get("labels"))

    def waiting(self) -> list[str]:
        """Return the pods without a node."""
        return [pod["metadata"]["name"] for pod in self.cluster.api.list(PODS) if not pod["spec"].get("nodeName")]

    def leaving(self) -> bool:
        """Whether pods are being deleted."""
        return any("deletionTimestamp" in pod["metadata"] for pod in self.cluster.api.list(PODS))

    def free(self) -> dict[str, int]:
        """Return node → GPUs that no pod has, where there are any."""
        used = Counter[str]()
        for pod in self.cluster.api.list(PODS):
            used[pod["spec"].get("nodeName", "")] += _gpus(pod)
        free = {f"hgx-h100-{number}": GPUS_OF_NODE - used[f"hgx-h100-{number}"] for number in range(NODES)}
        return {node: count for node, count in free.items() if count}

    def ask_for_room(self, *names: str, as_gang: bool = False) -> None:
        """Create pods behind the gate, each of which wants more GPUs than any node has left."""
        assert max(self.free().values()) < ROOM
        gang = {keys.GROUP: "room", keys.GROUP_SIZE: str(len(names)), keys.GANG: "required"} if as_gang else {}
        self.cluster.submit(*(_gated(ROOM, name, gang) for name in names))

    def is_quiet(self) -> bool:
        """Whether no plan is under way, nothing is reserved, and no pod is leaving, about to be created, or about to be bound."""
        extender = self.cluster.extender
        return (
            extender.metric("move_plans_under_way") == 0
            and extender.metric("assumed_placements") == 0
            and not self.leaving()
            and self.per_owner().keys() == self.before.keys()
            and all(self.cluster.pod(name)["spec"].get("schedulingGates") for name in self.waiting())
        )

    def report(self) -> None:
        """Let each agent say who holds which GPUs: that proves that a pod is gone that left while no extender watched."""
        self._reports += 1
        held: dict[str, dict[str, list[str]]] = {f"hgx-h100-{number}": {} for number in range(NODES)}
        for pod in self.cluster.api.list(PODS):
            if keys.PLACEMENT in pod["metadata"].get("annotations", {}) and _runs(pod):
                gpus = decode_placement(pod["metadata"]["annotations"][keys.PLACEMENT]).containers["main"]
                held[pod["spec"]["nodeName"]][pod["metadata"]["name"]] = [*gpus]
        for node, pods in held.items():
            self.cluster.report(node, 1_000_000 + self._reports, **pods)

    def is_settled(self) -> bool:
        """Whether it is quiet, and only pods that are there have claims."""
        self.report()
        uids = {pod["metadata"]["uid"] for pod in self.cluster.api.list(PODS)}
        claims = [claim for number in range(NODES) for claim in self.cluster.ledger(f"hgx-h100-{number}").claims]
        return self.is_quiet() and {claim.uid for claim in claims} <= uids

    def evicted_for(self) -> set[str]:
        """Return the pods for which others were evicted."""
        return {event["message"].split("default/")[1].split(",")[0] for event in self.cluster.events(EVICTED)}

    def check_fixed(self) -> None:
        """No pod was evicted that may not be, and no ReplicaSet is without its pod, running or waiting."""
        after = self.pods()
        stayed = {name for name in self.fixed if name in self.before}
        assert {name: after[name]["metadata"]["uid"] for name in stayed} == {
            name: self.before[name]["metadata"]["uid"] for name in stayed
        }
        assert self.per_owner() == Counter(dict.fromkeys(self.before, 1))


def job(name: str, restart_cost: str, **more: Json) -> Json:
    """Return a Job of one pod with one GPU, which the first failure ends."""
    annotations = {keys.MOVABLE: "true", keys.RESTART_COST: restart_cost}
    template = {"metadata": {"annotations": annotations}, "spec": _gated(1)["spec"] | {"restartPolicy": "Never"}}
    indexed = {"completionMode": "Indexed", "completions": 1, "parallelism": 1, "backoffLimit": 0}
    return {"metadata": {"name": name}, "spec": {**indexed, "template": template, **more}}


def job_of_set(name: str, pods: int, **more: Json) -> Json:
    """Return a Job of so many pods, which a JobSet restarts with its other Jobs."""
    made = job(name, "1m", **more)
    made["spec"] |= {"completions": pods, "parallelism": pods}
    words = {f"jobset.sigs.k8s.io/{key}": "train" for key in ("jobset-name", "jobset-uid")}
    made["spec"]["template"]["metadata"]["labels"] = words
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "train", "uid": "train"}
    made["metadata"]["ownerReferences"] = [{**job_set, "controller": True}]
    return made


def _gated(gpus: int, name: str = "x", annotations: dict[str, str] | None = None) -> Json:
    return gpu_pod(
        name, gpus, annotations, schedulerName=PLAIN, schedulingGates=[OURS], terminationGracePeriodSeconds=1
    )


def _gpus(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"][GPU])


def _runs(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def numbers(config: pytest.Config) -> range:
    return range(LONG if config.getoption("--long") else FLEETS)


def test_pods_get_room_on_fragmented_fleets_and_none_is_evicted_in_vain(
    installation: Installation, pytestconfig: pytest.Config
) -> None:
    """All that were evicted run again, and all for which they were evicted run. On the second fleet a gang waits."""
    evicted = 0
    for seed in numbers(pytestconfig):
        with moving(installation) as cluster:
            at_work = Fleet(cluster, seed)
            is_gang = seed == 1
            at_work.ask_for_room("w0", "w1", as_gang=is_gang)
            eventually(partial(cluster.node_of, "w0"), 120)
            eventually(at_work.is_quiet, 120)
            evicted += len(cluster.events(EVICTED))
            helped = {"w0", "w1"} if is_gang else at_work.evicted_for()
            assert {name for name in helped if not cluster.node_of(name)} == set()
            assert at_work.pods().keys() == at_work.before.keys()
            at_work.check_fixed()
    print(evicted)
    assert evicted >= len(numbers(pytestconfig))


def test_a_planner_that_is_killed_in_the_middle_of_a_plan_leaves_no_reservation(
    installation: Installation, pytestconfig: pytest.Config
) -> None:
    """It starts again, knows nothing of the plan, and no pod is lost."""
    for seed in numbers(pytestconfig):
        with moving(installation) as cluster:
            at_work = Fleet(cluster, 1000 + seed)
            at_work.ask_for_room("w0", "w1")
            eventually(partial(cluster.events, WAITS if seed % 2 else EVICTED), 120, every_seconds=0.01)
            cluster.extender.kill()
            cluster.extender.run()
            eventually(at_work.is_settled, 240, every_seconds=1.0)
            at_work.check_fixed()


def test_a_job_counts_no_failure_for_pods_that_move_and_their_next_pods_take_the_reserved_places(
    installation: Installation,
) -> None:
    """Both pods of its JobSet move. A Job that would count one keeps its pod. A pod that comes between gets no reserved GPU.

    The move is recorded in the queue's Lease, which the extender renews meanwhile.
    """
    ignores = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    with moving(installation) as cluster:

        def pods_of(name: str, count: int = 1) -> list[Json]:
            pods = cluster.api.list(PODS, labelSelector=f"batch.kubernetes.io/job-name={name}")
            running = [pod for pod in pods if _runs(pod) and "deletionTimestamp" not in pod["metadata"]]
            return running if len(running) == count else []

        cluster.join(*fleet({"hgx-h100": 2}))
        cluster.submit(_gated(GPUS_OF_NODE, "full"))
        old = eventually(partial(cluster.node_of, "full"))
        cluster.submit(_gated(3, "stays"))
        cluster.api.post(JOBS, job_of_set("ignores", 2, podFailurePolicy={"rules": ignores}))
        cluster.api.post(JOBS, job("counts", "0s"))
        before = eventually(partial(pods_of, "ignores", 2), 120)
        (stays,) = eventually(partial(pods_of, "counts"), 120)
        cluster.delete("full")
        cluster.submit(_gated(5, "other"))
        assert eventually(partial(cluster.node_of, "other")) == old
        cluster.submit(_gated(ROOM, "waits"))
        eventually(partial(cluster.events, EVICTED), 120, every_seconds=0.01)
        cluster.submit(_gated(3, "between"))
        assert eventually(partial(cluster.node_of, "waits"), 120) == stays["spec"]["nodeName"]
        after = eventually(partial(pods_of, "ignores", 2), 120)
        uids = [{pod["metadata"]["uid"] for pod in pods} for pods in (before, after)]
        assert uids[0].isdisjoint(uids[1])
        assert [pod["spec"]["nodeName"] for pod in after] == [old, old]
        assert [pod["metadata"]["uid"] for pod in pods_of("counts")] == [stays["metadata"]["uid"]]
        status = cluster.api.get(f"{JOBS}/ignores")["status"]
        assert (status.get("failed", 0), status.get("conditions", [])) == (0, [])
        assert cluster.node_of("between") is None
        (lease,) = cluster.api.list(LEASES, fieldSelector=f"metadata.name={QUEUE_LEASE}")
        moves = decode(lease["metadata"]["annotations"][keys.MOVES], Instant(0.0, 0.0))
        assert ({move.uid for move in moves}, bool(lease["spec"]["holderIdentity"])) == (uids[0], True)


def test_a_share_moves_onto_a_shared_gpu_and_a_pod_gets_the_gpu_that_it_leaves(installation: Installation) -> None:
    """No GPU is free before. The next pod of its owner has exactly the share that was reserved."""
    gated: Json = {"schedulerName": PLAIN, "schedulingGates": [OURS], "terminationGracePeriodSeconds": 1}
    with moving(installation) as cluster:

        def serving(but_for: str = "") -> list[Json]:
            pods = cluster.api.list(PODS, labelSelector="app=serve")
            return [pod for pod in pods if _runs(pod) and pod["metadata"]["name"] != but_for]

        cluster.join(*(SimulatedNode(name, "hgx-h100", shared_gpus=GPUS_OF_NODE) for name in ("one", "two")))
        cluster.submit(_gated(GPUS_OF_NODE, "full"))
        other = eventually(partial(cluster.node_of, "full"))
        cluster.submit(_gated(GPUS_OF_NODE - 1, "stays"))
        node = eventually(partial(cluster.node_of, "stays"))
        labels = {"app": "serve"}
        template = {"metadata": {"labels": labels, "annotations": MOVABLE}, "spec": share_pod("x", 10, **gated)["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        cluster.api.post(REPLICA_SETS, {"metadata": {"name": "serve"}, "spec": spec})
        (before,) = eventually(serving, 120)
        name = before["metadata"]["name"]
        gpu = cluster.placement(name).containers["main"]
        cluster.delete("full")
        cluster.submit(_gated(GPUS_OF_NODE - 1, "beside"))
        assert eventually(partial(cluster.node_of, "beside")) == other
        cluster.submit(share_pod("there", 30, nodeSelector={"kubernetes.io/hostname": other}, **gated))
        eventually(partial(cluster.is_running, "there"), 120)
        cluster.submit(_gated(1, "waits"))
        assert eventually(partial(cluster.node_of, "waits"), 120) == node
        assert cluster.placement("waits").containers["main"] == gpu
        (after,) = eventually(partial(serving, name), 120)
        moved = cluster.placement(after["metadata"]["name"])
        assert (after["spec"]["nodeName"], moved.memory_gib) == (other, {"main": 10})
        assert moved.containers["main"] == cluster.placement("there").containers["main"]
