"""Claims of our DeviceClass: the extender allocates them, and the real kube-scheduler keeps to that, or takes it back.

NVIDIA's driver is a stub that publishes devices; no container is prepared. kube-scheduler knows nothing of our extender.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from extender.features.dra.preemption_events import NOT_PREEMPTED as PREEMPTS_NONE
from extender.features.dra.preemption_events import PREEMPTED
from extender.features.dra.taints import RULES, TAINT
from extender.features.sick_gpus.events import SICK
from tests.cluster.api import ApiError
from tests.cluster.binaries import is_oldest
from tests.cluster.claims import CLAIMS, GPUS, SLICES, TEMPLATES, published
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.objects import PODS, PRIORITIES, Json, priority_class
from tests.cluster.planned_claims import (
    FINALIZER,
    OUR_CLASS,
    allocations,
    assert_no_gpu_twice,
    claiming,
    claims_planned,
    dra_node,
    join,
    sweep_claims,
)
from tests.cluster.polling import eventually
from tests.cluster.test_rbac import EXTENDER
from tests.dra import gpu, resource_slice
from tests.extender.plugin import invoke
from tests.manifests.rendered import NAMESPACE
from tests.world.kubelets import running_kubelets
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, NodeGpuStatus

pytestmark = [pytest.mark.slow, pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no resource.k8s.io/v1")]


@pytest.fixture(scope="module")
def started(binaries: Path) -> Iterator[GpuCluster]:
    """Start a control plane with the chart's planner, its own account, and a kube-scheduler that knows nothing of it."""
    with ControlPlane(binaries) as plane, running_kubelets(plane.kubeconfig()), claims_planned(plane) as started:
        yield started


@pytest.fixture
def cluster(started: GpuCluster) -> Iterator[GpuCluster]:
    """Lend the control plane without nodes and pods."""
    yield started
    sweep_claims(started)


QUOTAS, DEVICES = "/api/v1/namespaces/default/resourcequotas", f"{OUR_CLASS}.deviceclass.resource.k8s.io/devices"
PLUGINS = "requests.nvidia.com/gpu"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def says_why(cluster: GpuCluster, name: str, words: str) -> bool:
    events = cluster.events("GPUPodQueued")
    return any(event["involvedObject"]["name"] == name and words in event["message"] for event in events)


def test_pods_get_exactly_the_planned_devices_though_the_planner_is_killed(cluster: GpuCluster) -> None:
    """60 pods of 1 to 8 GPUs on ten nodes; ended pods free their devices, and nothing is left in the ledgers."""
    nodes = [dra_node(f"n{number}") for number in range(10)]
    join(cluster, *nodes)
    sizes = [1, 2, 4, 8, 3, 2, 1, 5, 2, 4]
    wanted = {f"p{number}": sizes[number % len(sizes)] for number in range(60)}
    cluster.submit(*(claiming(name, gpus) for name, gpus in wanted.items()))
    right, kills = set[str](), [10, 25, 40]

    def look() -> bool:
        given = allocations(cluster)
        assert_no_gpu_twice(given)
        for pod in cluster.api.list(PODS):
            name = pod["metadata"]["name"]
            if name in right or pod["status"].get("phase") != "Running" or name not in given:
                continue
            node, gpus = given[name]
            assert (pod["spec"]["nodeName"], len(gpus)) == (node, wanted[name])
            assert cluster.claims(node, name) == gpus
            right.add(name)
            cluster.complete(name)
        if kills and len(right) >= kills[0]:
            cluster.extender.kill()
            cluster.extender.start()
            del kills[0]
        return not kills and len(right) == len(wanted)

    eventually(look, 180)
    eventually(lambda: not any(cluster.ledger(node.name).claims for node in nodes))
    eventually(lambda: not allocations(cluster))


def test_a_pod_that_cannot_run_where_it_is_planned_is_planned_elsewhere(cluster: GpuCluster) -> None:
    """kube-scheduler takes its allocation back; its gate stays open. Our extender does not know of the host port."""
    join(cluster, dra_node("a"), dra_node("b"))
    first = claiming("first", 1)
    first["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    cluster.submit(first)
    eventually(lambda: cluster.is_running("first"))
    (taken,) = {node for node, _ in allocations(cluster).values()}
    second = claiming("second", 1)
    second["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    cluster.submit(second)
    eventually(lambda: cluster.is_running("second"))
    assert cluster.extender.metric('dra_allocations_total{outcome="undone"}')
    assert cluster.node_of("second") == allocations(cluster)["second"][0] != taken
    eventually(lambda: cluster.claims(taken, "second") == set())


def test_an_allocation_that_nobody_uses_is_taken_back(cluster: GpuCluster) -> None:
    """Nobody schedules the pod; its devices are free again after the deadline, and are planned again."""
    join(cluster, dra_node("a"))
    pod = claiming("nobodys", 8)
    pod["spec"]["schedulerName"] = "nobody"
    cluster.submit(pod)
    eventually(lambda: allocations(cluster))
    eventually(lambda: cluster.extender.metric('dra_allocations_total{outcome="taken-back"}'))


def test_the_plugin_lists_claims_that_are_reserved_and_that_wait(cluster: GpuCluster) -> None:
    """It names GPUs by the indexes of their node, which differ here from the numbers of the devices."""
    join(cluster, dra_node("a"))
    cluster.submit(claiming("runs", 2))
    eventually(lambda: cluster.is_running("runs"))
    cluster.submit(claiming("waits", 7))
    eventually(partial(says_why, cluster, "waits", ""))
    answer = invoke("claims", "-n", "default", "-o", "json", "--kubeconfig", str(cluster.plane.kubeconfig()))
    report = json.loads(answer.stdout)
    shown = {row["pods"][0]: (row["state"], row["requested"], row["node"]) for row in report["claims"]}
    assert (answer.exit_code, report["has_planner"]) == (0, True)
    assert shown == {"runs": ("reserved", [2], "a"), "waits": ("waiting", [7], None)}
    uuids = [gpu.uuid for gpu in dra_node("a").topology.gpus]
    (devices,) = (row["devices"] for row in report["claims"] if row["devices"])
    assert {uuids[device["index"]] for device in devices} == allocations(cluster)["runs"][1]


def test_the_first_alternative_for_which_there_is_room_is_allocated(cluster: GpuCluster) -> None:
    """kube-scheduler keeps to it, and the result names it as Kubernetes does.

    A node that joins often is not schedulable for a while: these tests have several.
    """
    join(cluster, dra_node("x"))
    ways = [
        {"name": name, "deviceClassName": OUR_CLASS, "count": count} for name, count in (("large", 6), ("small", 2))
    ]
    spec = {"devices": {"requests": [{"name": "gpus", "firstAvailable": ways}]}}
    cluster.api.post(TEMPLATES, {"metadata": {"name": "gpus-either"}, "spec": {"spec": spec}})
    for name, request, count in (("first", "gpus/large", 6), ("second", "gpus/small", 2)):
        pod = claiming(name, 1)
        pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "gpus-either"
        cluster.submit(pod)
        eventually(partial(cluster.is_running, name))
        _, gpus = allocations(cluster)[name]
        assert (requests_met(cluster, name), len(gpus)) == ({request}, count)
        assert cluster.claims("x", name) == gpus


def test_a_claim_without_a_template_serves_one_pod_after_the_other(cluster: GpuCluster) -> None:
    """The second one waits until the first is gone, and says so: a controller would free its devices before."""
    join(cluster, dra_node("y"))
    exactly = {"name": "gpus", "exactly": {"deviceClassName": OUR_CLASS, "count": 3}}
    cluster.api.post(CLAIMS, {"metadata": {"name": "gpus-mine"}, "spec": {"devices": {"requests": [exactly]}}})
    for name in ("first", "second"):
        pod = claiming(name, 1)
        pod["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "gpus-mine"}]
        cluster.submit(pod)
        if name == "first":
            eventually(lambda: cluster.is_running("first"))
    eventually(partial(says_why, cluster, "second", "the pod first has it until that pod is deleted"))
    assert cluster.pod("second")["spec"]["schedulingGates"], "the policy knows the claim by its name"
    _, gpus = allocations(cluster)["gpus-mine"]
    assert len(gpus) == 3 and cluster.claims("y", "first") == gpus
    cluster.complete("first")
    eventually(lambda: not cluster.ledger("y").claims and not allocations(cluster))
    cluster.api.delete(f"{PODS}/first", gracePeriodSeconds="0")
    eventually(lambda: cluster.is_running("second"))
    assert cluster.claims("y", "second") == allocations(cluster)["gpus-mine"][1]
    cluster.complete("second")
    eventually(lambda: not cluster.ledger("y").claims and not allocations(cluster))


def test_a_pod_of_higher_priority_gets_the_devices_of_a_pod_that_it_preempts(cluster: GpuCluster) -> None:
    """kube-scheduler preempts none for devices. A budget keeps the other pod, and no device is in two claims at any time."""
    join(cluster, dra_node("p"))
    for name, value in (("low", 10), ("high", 1000)):
        cluster.api.post(PRIORITIES, priority_class(name, value))
    low, high = claiming("low", 8), claiming("high", 8)
    for pod in (low, high):
        pod["spec"]["priorityClassName"] = pod["metadata"]["name"]
    low["metadata"]["labels"] = {"app": "low"}
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "low"}}}
    cluster.api.post(BUDGETS, {"metadata": {"name": "low"}, "spec": spec})
    try:
        cluster.submit(low)
        eventually(lambda: cluster.is_running("low"))
        given = allocations(cluster)["low"]
        cluster.submit(high)
        eventually(lambda: any("PodDisruptionBudget" in event["message"] for event in cluster.events(PREEMPTS_NONE)))
        assert "deletionTimestamp" not in cluster.pod("low")["metadata"]
        cluster.api.delete(f"{BUDGETS}/low")

        def is_running() -> bool:
            assert_no_gpu_twice(allocations(cluster))
            return cluster.is_running("high")

        eventually(is_running)
        assert allocations(cluster) == {"high": given} and cluster.node_of("high") == "p"
        assert cluster.claims("p", "high") == given[1]
        (event,) = (event for event in cluster.events(PREEMPTED) if event["involvedObject"]["name"] == "low")
        assert event["message"] == "Preempted by default/high on node p"
    finally:
        for path in (BUDGETS, f"{PRIORITIES}/low", f"{PRIORITIES}/high"):
            cluster.api.delete(path)


def test_a_gang_of_higher_priority_gets_the_devices_of_pods_on_several_nodes(cluster: GpuCluster) -> None:
    """A gang that would not get room for all of its pods ends none; no device is in two claims at any time."""
    join(cluster, dra_node("g"), dra_node("h"))
    for name, value in (("low", 10), ("high", 1000)):
        cluster.api.post(PRIORITIES, priority_class(name, value))
    try:
        lows = [of_class(claiming(f"low-{number}", 8), "low") for number in range(2)]
        cluster.submit(*lows)
        eventually(lambda: all(cluster.is_running(f"low-{number}") for number in range(2)))
        cluster.submit(*gang("large", 3))
        eventually(lambda: says_why(cluster, "large-0", "no room for it"))
        cluster.submit(*gang("high", 2))

        def are_running() -> bool:
            assert_no_gpu_twice(allocations(cluster))
            return all(cluster.is_running(f"high-{number}") for number in range(2))

        eventually(are_running, 60)
        assert {cluster.node_of(f"high-{number}") for number in range(2)} == {"g", "h"}
        told = {event["involvedObject"]["name"]: event["message"] for event in cluster.events(PREEMPTED)}
        assert all(told[f"low-{number}"].startswith("Preempted by default/high-") for number in range(2))
    finally:
        for name in ("low", "high"):
            cluster.api.delete(f"{PRIORITIES}/{name}")


def gang(name: str, size: int) -> list[Json]:
    """Return pods of the class `high` that start together, with the GPUs of a node each."""
    pods = [of_class(claiming(f"{name}-{number}", 8), "high") for number in range(size)]
    for pod in pods:
        words = {keys.GROUP: name, keys.GROUP_SIZE: str(size), keys.GANG: "required"}
        pod["metadata"].setdefault("annotations", {}).update(words)
    return pods


def of_class(pod: Json, name: str) -> Json:
    """Return the pod with a PriorityClass."""
    pod["spec"]["priorityClassName"] = name
    return pod


def test_a_sick_gpu_is_never_allocated_and_pods_that_use_it_hear_of_it(cluster: GpuCluster) -> None:
    """Agent and driver have the same say: of eight GPUs one calls two sick, and the other taints two."""
    node = dra_node("s")
    uuids = [gpu.uuid for gpu in node.topology.gpus]
    join(cluster, node)
    fall_sick(cluster, "s", uuids[:2])
    taint(cluster, "s", uuids, uuids[2:4], generation=2)
    eventually(lambda: cluster.extender.metric("gpus_free") == 4)
    cluster.submit(claiming("runs", 4))
    eventually(lambda: cluster.is_running("runs"))
    cluster.submit(claiming("waits", 1))
    eventually(partial(says_why, cluster, "waits", ""))
    assert allocations(cluster) == {"runs": ("s", frozenset(uuids[4:]))}
    fall_sick(cluster, "s", [*uuids[:2], uuids[4]])
    eventually(lambda: hears(cluster, "runs", "xid 79, needs a reset"))
    taint(cluster, "s", uuids, [*uuids[2:4], uuids[5]], generation=3)
    eventually(lambda: hears(cluster, "runs", "tainted by its DRA driver: gpu.nvidia.com/xid=94:NoSchedule"))
    assert cluster.is_running("runs") and allocations(cluster).keys() == {"runs"}


def test_a_quota_for_our_class_is_counted_by_kubernetes(cluster: GpuCluster) -> None:
    """What is beyond it is refused when the claim is made, and the pod waits behind its gate until there is quota again."""
    join(cluster, dra_node("q"))
    controllers = cluster.plane.start_controllers("resourcequota-controller")
    try:
        hard = {DEVICES: "5", PLUGINS: "0"}
        cluster.api.post(QUOTAS, {"metadata": {"name": "gpus"}, "spec": {"hard": hard}})
        eventually(lambda: quota(cluster) == {"hard": hard, "used": {DEVICES: "0", PLUGINS: "0"}})
        cluster.submit(claiming("within", 4))
        eventually(lambda: cluster.is_running("within"))
        eventually(lambda: quota(cluster)["used"] == {DEVICES: "4", PLUGINS: "0"})
        for counts in ([2], [3, 1]):
            claim = {"metadata": {"name": "gpus-mine"}, "spec": {"devices": {"requests": [request(*counts)]}}}
            with pytest.raises(ApiError, match=re.escape(refusal(max(counts)))):
                cluster.api.post(CLAIMS, claim)
        cluster.submit(claiming("beyond", 2))
        eventually(lambda: any(refusal(2) in item["message"] for item in cluster.events("FailedResourceClaimCreation")))
        cluster.submit(claiming("last", 1))
        eventually(lambda: cluster.is_running("last"))
        assert cluster.pod("beyond")["spec"]["schedulingGates"] and not cluster.claims("q", "beyond")
        cluster.complete("within")
        eventually(lambda: cluster.is_running("beyond"), 120)
    finally:
        controllers.stop()
        cluster.api.delete(QUOTAS)


def test_what_cannot_be_allocated_is_refused_with_a_reason(cluster: GpuCluster) -> None:
    """Claims of NVIDIA's class are refused by the API server; what we cannot allocate, on the pod."""
    join(cluster, dra_node("a"))
    costly = f"[{','.join('1' * 100)}].map(x, [device, device]).size() > 0"
    refused: dict[str, tuple[Json, str]] = {
        "all": ({"allocationMode": "All"}, "allocationMode"),
        "costly": ({"selectors": [{"cel": {"expression": costly}}]}, "too expensive"),
    }
    for name, (wanted, _) in refused.items():
        spec = {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": OUR_CLASS, **wanted}}]}}
        cluster.api.post(TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": spec}})
        pod = claiming(name, 1)
        pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = name
        cluster.submit(pod)
    for name, (_, reason) in refused.items():
        eventually(partial(says_why, cluster, name, reason))
    with pytest.raises(ApiError, match="reserved"):
        cluster.api.post(CLAIMS, nvidias())


def test_the_extender_may_change_no_other_claims_and_none_that_is_used(cluster: GpuCluster) -> None:
    """RBAC lets it patch all of them; a policy does not. Its own writes are those of the other tests."""
    join(cluster, dra_node("a"))
    cluster.submit(claiming("runs", 1))
    eventually(lambda: cluster.is_running("runs"))
    (ours,) = (claim["metadata"]["name"] for claim in cluster.api.list(CLAIMS))
    spec = {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nic.example.com"}}]}}
    theirs = {"metadata": {"name": "theirs"}, "spec": spec}
    cluster.api.post(CLAIMS, theirs)
    cluster.api.patch(f"{CLAIMS}/{ours}", {"metadata": {"annotations": {"example.com/owner": "ml"}}})
    with cluster.plane.service_account(NAMESPACE, EXTENDER) as extender:
        for words, path, change in (
            ("of gpus.gputopo.dev and mig.gputopo.dev only", "theirs", {"metadata": {"finalizers": [FINALIZER]}}),
            ("changes only its finalizer", ours, {"metadata": {"labels": {"a": "b"}}}),
            ("changes only its finalizer", ours, {"metadata": {"annotations": {"example.com/owner": "another"}}}),
            ("changes only its finalizer", ours, {"metadata": {"annotations": {"example.com/owner": None}}}),
            ("none that is reserved", f"{ours}/status", {"status": {"allocation": None, "reservedFor": None}}),
        ):
            with pytest.raises(ApiError, match=words):
                extender.patch(f"{CLAIMS}/{path}", change)
        with pytest.raises(ApiError, match="reserved"):
            extender.post(f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims", nvidias(), dryRun="All")
        with pytest.raises(ApiError, match="dry run only"):
            extender.post(f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims", theirs)


def test_the_extender_taints_single_devices_only(cluster: GpuCluster) -> None:
    """RBAC lets it write any rule; one of another effect would end pods. It removes no rule of others."""
    if "devicetaintrules" not in {kind["name"] for kind in cluster.api.get("/apis/resource.k8s.io/v1")["resources"]}:
        pytest.skip("before Kubernetes 1.37 there are no DeviceTaintRules by default")

    def rule(name: str, effect: str = "NoSchedule", key: str = TAINT, **selector: str) -> Json:
        spec = {"deviceSelector": {"driver": "gpu.nvidia.com", **selector}, "taint": {"key": key, "effect": effect}}
        return {"metadata": {"name": name}, "spec": spec}

    device = {"pool": "a", "device": "gpu-0"}
    cluster.api.post(RULES, rule("theirs", key="example.com/broken", **device))
    with cluster.plane.service_account(NAMESPACE, EXTENDER) as extender:
        extender.post(RULES, rule("ours", **device))
        extender.delete(f"{RULES}/ours")
        for refused in (
            rule("evicts", "NoExecute", **device),
            rule("another-key", key="example.com/broken", **device),
            rule("a-whole-node", pool="a"),
            rule("another-driver", driver="nic.example.com", **device),
        ):
            with pytest.raises(ApiError, match="only taints single devices"):
                extender.post(RULES, refused)
        with pytest.raises(ApiError, match="only taints single devices"):
            extender.delete(f"{RULES}/theirs")
    cluster.api.delete(f"{RULES}/theirs")


def fall_sick(cluster: GpuCluster, node: str, uuids: Sequence[str]) -> None:
    """Let the node's agent call these GPUs sick."""
    sick = (GpuStatus(uuid, False, ("xid 79, needs a reset",), sick_since=int(time.time())) for uuid in uuids)
    cluster.annotate(node, keys.STATUS, encode_status(NodeGpuStatus(9, tuple(sick))))


def taint(cluster: GpuCluster, node: str, uuids: Sequence[str], tainted: Sequence[str], *, generation: int) -> None:
    """Let the node's driver publish its GPUs anew, with a taint on these."""
    word = {"key": "gpu.nvidia.com/xid", "value": "94", "effect": "NoSchedule"}
    named = {published(uuids, f"gpu-{minor}"): minor for minor in range(len(uuids))}
    devices = [gpu(named[uuid], uuid, *([word] if uuid in tainted else [])) for uuid in uuids]
    cluster.api.post(SLICES, resource_slice(node, devices, name=f"{node}-{generation}", generation=generation))


def hears(cluster: GpuCluster, name: str, words: str) -> bool:
    events = cluster.events(SICK)
    return any(event["involvedObject"]["name"] == name and words in event["message"] for event in events)


def request(*counts: int) -> Json:
    """Return a request for so many devices of our class, or for the first of several counts for which there is room."""
    ways: list[Json] = [{"deviceClassName": OUR_CLASS, "count": count} for count in counts]
    if len(ways) == 1:
        return {"name": "gpus", "exactly": ways[0]}
    return {"name": "gpus", "firstAvailable": [{"name": f"way-{at}", **way} for at, way in enumerate(ways)]}


def refusal(devices: int) -> str:
    """Return what Kubernetes says of a claim for more devices than 5 when 4 are used."""
    return f"exceeded quota: gpus, requested: {DEVICES}={devices}, used: {DEVICES}=4, limited: {DEVICES}=5"


def quota(cluster: GpuCluster) -> Json:
    """Return what is allowed and used, as Kubernetes counts it."""
    status: Json = cluster.api.get(f"{QUOTAS}/gpus").get("status", {})
    return status


def requests_met(cluster: GpuCluster, pod: str) -> set[str]:
    """Return the requests that the results of a pod's claim name."""
    claims = (claim for claim in cluster.api.list(CLAIMS) if claim["metadata"]["ownerReferences"][0]["name"] == pod)
    return {result["request"] for claim in claims for result in claim["status"]["allocation"]["devices"]["results"]}


def nvidias() -> Json:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": GPUS}}]
    return {"metadata": {"name": "nvidias"}, "spec": {"devices": {"requests": requests}}}
