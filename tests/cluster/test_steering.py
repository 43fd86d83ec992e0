"""The real kube-scheduler takes the nominations of an extender that plans its queue ahead; one that is wrong costs it little."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from benchmarks.simulated.fleet import fleet
from tests.cluster.extender_process import ExtenderProcess
from tests.cluster.gpu_cluster import GpuCluster, at_work, wants
from tests.cluster.installation import Installation
from tests.cluster.judgement import assert_invariants
from tests.cluster.objects import NODES, PODS, Json
from tests.cluster.polling import eventually
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE
from topology.annotations import keys

pytestmark = [pytest.mark.usefixtures("kubelets"), pytest.mark.slow]

LIFE_SECONDS = 3
STEERING = {"enabled": True, "queue": 2, "nodes": 2, "life": f"{LIFE_SECONDS}s"}
PATIENT = STEERING | {"life": "60s"}


@pytest.fixture
def steering() -> Json:
    return STEERING


@pytest.fixture
def steered(installation: Installation, steering: Json) -> Iterator[GpuCluster]:
    """Lend the installed control plane with an extender that steers, and a scheduler at work."""
    try:
        with at_work(installation, {"steering": steering}) as lent:
            yield lent
            assert_invariants(installation.plane.admin, lent.told())
    finally:
        sweep(installation.plane.admin, keep=[NAMESPACE])


def ask(cluster: GpuCluster, extender: ExtenderProcess) -> None:
    """Let an extender see that it is kube-scheduler's: a pod is asked about."""
    nodes = [node["metadata"]["name"] for node in cluster.api.list(NODES)]
    pod = wants("asked", 0)
    pod["metadata"] |= {"namespace": "default", "uid": "asked"}
    body = json.dumps({"Pod": pod, "NodeNames": nodes}).encode()
    assert extender.read("/v1/extender/filter", body)[0] == 200


def submit_a_queue(cluster: GpuCluster, *pods: Json) -> None:
    """Let a queue form: nobody schedules yet, though the extender was asked a moment ago."""
    cluster.plane.stop_schedulers()
    cluster.submit(*pods)
    ask(cluster, cluster.extender)


def nominated(cluster: GpuCluster) -> dict[str, str]:
    """Return the node that each waiting pod is nominated for."""
    waiting = [pod for pod in cluster.api.list(PODS) if "nodeName" not in pod["spec"]]
    found = {pod["metadata"]["name"]: pod["status"].get("nominatedNodeName", "") for pod in waiting}
    return {name: node for name, node in found.items() if node}


def managers(pod: Json) -> set[str]:
    """Return who says that the pod is nominated."""
    return {
        entry["manager"]
        for entry in pod["metadata"]["managedFields"]
        if "f:nominatedNodeName" in entry["fieldsV1"].get("f:status", {})
    }


def all_run(cluster: GpuCluster, pods: list[Json]) -> Callable[[], bool]:
    return lambda: all(cluster.is_running(pod["metadata"]["name"]) for pod in pods)


@pytest.mark.parametrize("steering", [PATIENT])
def test_a_nominated_pod_goes_there(steered: GpuCluster, installation: Installation) -> None:
    """Each in one call about one node, without scores; with the field in our field manager's name.

    The Binding clears it, but on Kubernetes 1.30 nobody does.
    """
    steered.join(*fleet({"hgx-h100": 4}))
    pods = [wants(f"p{number}", size) for number, size in enumerate((1, 2, 4, 2, 1, 4, 8, 2))]
    submit_a_queue(steered, *pods)
    where = eventually(lambda: found if len(found := nominated(steered)) == len(pods) else {})
    assert managers(steered.pod("p0")) == {"gputopo-steering"}
    assert steered.pod("p0")["metadata"]["annotations"][keys.NOMINATED] == where["p0"]
    calls = len(steered.extender.said("filter"))
    installation.start_scheduler(steered.extender)
    eventually(all_run(steered, pods))
    assert {name: steered.node_of(name) for name in where} == where
    assert len(steered.extender.said("filter")) - calls == len(pods)
    assert not steered.extender.said("prioritize")
    is_cleared = int(steered.plane.admin.get("/version")["minor"]) > 30
    assert steered.pod("p0")["status"].get("nominatedNodeName") == (None if is_cleared else where["p0"])
    eventually(lambda: steered.extender.metric('nominations_total{outcome="served"}') == len(pods))


@pytest.mark.parametrize("steering", [PATIENT])
def test_a_node_that_another_rule_forbids_costs_one_try(steered: GpuCluster, installation: Installation) -> None:
    """Two want one host port, which is not looked at, and are nominated for one node: either goes elsewhere in that attempt."""
    steered.join(*fleet({"hgx-h100": 2}))
    with_port = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    pods = [wants(name, 2) for name in ("first", "second", "third")]
    for pod in pods[:2]:
        pod["spec"]["containers"][0] |= with_port
    submit_a_queue(steered, *pods)
    where = eventually(lambda: found if len(found := nominated(steered)) == len(pods) else {})
    assert where["first"] == where["second"]
    installation.start_scheduler(steered.extender)
    eventually(all_run(steered, pods))
    assert {steered.node_of("first"), steered.node_of("second")} == {"hgx-h100-0", "hgx-h100-1"}
    asked = Counter(call["pod"] for call in steered.extender.said("filter"))
    assert asked["default/first"] == asked["default/second"] == 1, "kube-scheduler's own rules come first"
    assert steered.events("FailedScheduling") == []


def test_an_extender_that_dies_in_the_middle_leaves_no_pod_stuck(
    steered: GpuCluster, installation: Installation
) -> None:
    """The next one takes the nominations back that it finds, and the pods run."""
    steered.join(*fleet({"hgx-h100": 2}))
    pods = [wants(f"p{number}", 2) for number in range(6)]
    submit_a_queue(steered, *pods)
    eventually(lambda: nominated(steered), every_seconds=0.002)
    steered.extender.kill()
    assert nominated(steered)
    steered.extender.run()
    eventually(lambda: not nominated(steered), 30)
    assert keys.NOMINATED not in steered.pod("p0")["metadata"].get("annotations", {})
    installation.start_scheduler(steered.extender)
    eventually(all_run(steered, pods))


def test_two_extenders_nominate_each_pod_once_and_leave_others_nominations_alone(
    steered: GpuCluster, installation: Installation
) -> None:
    """Both are asked and plan the same queue. What does not come true they take back, but for what somebody else has written."""
    steered.join(*fleet({"hgx-h100": 2, "dgx-a100": 1}))
    beside = installation.extender({"steering": STEERING})
    with beside.running():
        steered.plane.stop_schedulers()
        pods = [wants(f"p{number}", 4) for number in range(3)]
        steered.submit(wants("preemptor", 8), wants("late", 4, schedulingGates=[{"name": "example.com/later"}]))
        theirs = {"status": {"nominatedNodeName": "dgx-a100-0"}}
        steered.api.patch(f"{PODS}/preemptor/status", theirs)
        steered.submit(*pods)
        ask(steered, steered.extender)
        ask(steered, beside)
        found = eventually(lambda: every if len(every := nominated(steered)) == 4 else {})
        assert found.pop("preemptor") == "dgx-a100-0" and Counter(found.values()) == {"hgx-h100-0": 2, "hgx-h100-1": 1}
        eventually(lambda: nominated(steered) == {"preemptor": "dgx-a100-0"}, 30)
        time.sleep(LIFE_SECONDS)
        assert nominated(steered) == {"preemptor": "dgx-a100-0"}
        made = [each.metric('nominations_total{outcome="made"}') or 0 for each in (steered.extender, beside)]
        assert sum(made) == len(pods), "what came to nothing is not tried again at once"
        installation.start_scheduler(steered.extender)
        eventually(partial(all_run(steered, [*pods, wants("preemptor", 8)])))


def test_nobody_is_nominated_by_default(gpu_cluster: GpuCluster) -> None:
    """However long the queue."""
    gpu_cluster.join(*fleet({"hgx-h100": 4}))
    pods = [wants(f"p{number}", 1) for number in range(30)]
    submit_a_queue(gpu_cluster, *pods)
    time.sleep(1)
    assert nominated(gpu_cluster) == {}
