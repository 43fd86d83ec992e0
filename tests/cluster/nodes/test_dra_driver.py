"""On real kubelets a stub DRA driver prepares claims: those of NVIDIA's class, and those that our planner has allocated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extender.features.dra.claim_spec import MIG_CLASS
from extender.features.dra.inventory import read_inventory
from extender.features.dra.profiles import selector_of
from tests.cluster.binaries import is_oldest
from tests.cluster.claims import CLAIMS, GPUS, allocated, claiming, device_classes, ever_twice
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.history import recorded
from tests.cluster.installation import Installation
from tests.cluster.nodes.agents import allow_agent_pods, enforcing, observing
from tests.cluster.nodes.claim_churn import ClaimChurn, claiming_pod
from tests.cluster.nodes.conftest import NAMES
from tests.cluster.nodes.dra_drivers import DraDriver, start_driver
from tests.cluster.nodes.node import FLAGS, GpuNode, Parts, users
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, submit, wait_running
from tests.cluster.objects import NODES
from tests.cluster.planned_claims import claims_planned, template
from tests.cluster.polling import eventually
from tests.dra import partitioned, read_slice
from tests.extender.plugin import invoke
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.records import decode_observed

MACHINES = {"n0": "hgx_h100", "n1": "dgx_a100", "n2": "dgx1v"}
PREPARE_SECONDS = 180.0
"""Far more than it takes; a kubelet that cannot prepare a claim tries again with the pod's next sync, a minute later."""
pytestmark = pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no resource.k8s.io/v1")


@pytest.fixture
def classes(node_plane: Installation) -> Iterator[None]:
    """Have NVIDIA's device classes, and the controllers of claims."""
    with device_classes(node_plane.plane):
        yield


def claim(node: GpuNode, name: str, count: int, **request: Any) -> None:
    submit(node, claiming(node.plane.admin, pod(name, 0, schedulerName=SCHEDULER_NAME), count, GPUS, **request))


def test_containers_get_the_gpus_that_no_claim_holds(node_cluster: GpuCluster, classes: None, nodes: Nodes) -> None:
    """One that only looks on holds none, though the kubelet lists its devices like any others."""
    node = nodes.one("hgx_h100")
    enforcing(node)
    driver = start_driver(node)
    claim(node, "by-claim", 3)
    wait_running(node_cluster, "by-claim", within_seconds=PREPARE_SECONDS)
    devices = allocated(node_cluster.api)
    held = {driver.gpu(device) for device in devices}
    claim(node, "monitor", 8, adminAccess=True)
    wait_running(node_cluster, "monitor", within_seconds=PREPARE_SECONDS)
    assert node.claimed() == {("by-claim", device) for device in devices} | {("monitor", f"gpu-{n}") for n in range(8)}
    submit(node, pod("rest", 5, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "rest")
    assert node.held() == {("rest", "main"): set(node.machine.uuids) - held}
    submit(node, pod("three", 3, schedulerName=SCHEDULER_NAME))
    eventually(lambda: node_cluster.why_pending("three"))
    node_cluster.delete("by-claim")
    wait_running(node_cluster, "three")
    assert node.held()["three", "main"] == held


def seen(driver: DraDriver) -> dict[tuple[str, str], set[str]]:
    """Return the GPUs of each container with claims, by pod and container, as the node's agent publishes them."""
    node = driver.node.plane.admin.get(f"{NODES}/{driver.node.name}")
    devices = dict[tuple[str, str], set[str]]()
    for user in decode_observed(node["metadata"]["annotations"][keys.OBSERVED]).claimed:
        assert user.pool == driver.node.name
        devices.setdefault((user.name, user.container), set()).update(map(driver.gpu, user.devices))
    return devices


def shown(cluster: GpuCluster, node: GpuNode) -> dict[str, str]:
    """Return GPU → its pod, as the plugin shows them."""
    answer = invoke("node", node.name, "-o", "json", "--kubeconfig", str(cluster.plane.kubeconfig()))
    return {gpu["uuid"]: gpu["pod"] for gpu in json.loads(answer.stdout)["gpus"] if gpu["pod"]}


def test_gpus_of_a_container_whose_claim_was_removed_by_force_go_to_no_pod(
    node_cluster: GpuCluster, classes: None, nodes: Nodes
) -> None:
    """Only the agent knows of them then. They are free when the container has stopped."""
    node = nodes.one("hgx_h100")
    enforcing(node)
    driver = start_driver(node)
    claim(node, "stray", 3)
    wait_running(node_cluster, "stray", within_seconds=PREPARE_SECONDS)
    held = {driver.gpu(device) for device in allocated(node_cluster.api)}
    eventually(lambda: seen(driver) == {("stray", "main"): held})
    (made,) = (item["metadata"]["name"] for item in node_cluster.api.list(CLAIMS))
    node_cluster.api.delete(f"{CLAIMS}/{made}")
    node_cluster.api.patch(f"{CLAIMS}/{made}", {"metadata": {"finalizers": None}})
    eventually(lambda: node_cluster.extender.metric("gpus_used_without_claim") == 3)
    assert shown(node_cluster, node) == dict.fromkeys(held, "default/stray")
    submit(node, pod("rest", 5, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "rest")
    assert node.held()["rest", "main"] == set(node.machine.uuids) - held
    submit(node, pod("three", 3, schedulerName=SCHEDULER_NAME))
    eventually(lambda: node_cluster.why_pending("three"))
    node_cluster.delete("stray")
    wait_running(node_cluster, "three")
    assert node.held()["three", "main"] == held
    eventually(lambda: node_cluster.extender.metric("gpus_used_without_claim") == 0)


@pytest.fixture
def planned(binaries: Path, parts: Parts) -> Iterator[tuple[GpuCluster, Nodes]]:
    """Start a control plane with the chart's planner and kube-scheduler alone, to which real nodes can be added."""
    with ControlPlane(binaries, users=users(NAMES), flags=FLAGS) as plane, claims_planned(plane) as cluster:
        allow_agent_pods(plane)
        nodes = Nodes(plane, parts)
        try:
            yield cluster, nodes
        finally:
            nodes.stop()


def test_the_agent_publishes_the_devices_that_were_planned(planned: tuple[GpuCluster, Nodes]) -> None:
    """What the plan says, what the kubelet lists and what the agent publishes are the same GPUs of each container."""
    cluster, nodes = planned
    (node,) = nodes.start({"n0": "hgx_h100"})
    driver = start_driver(node)
    observing(node)
    cluster.submit(claiming_pod("two", (2, 1), {}), claiming_pod("one", (3,), {}))
    for name in ("two", "one"):
        wait_running(cluster, name, within_seconds=PREPARE_SECONDS)
    wanted = {("two", "main"): 2, ("two", "c1"): 1, ("one", "main"): 3}
    eventually(lambda: seen(driver).keys() == wanted.keys())
    published = seen(driver)
    assert {container: len(gpus) for container, gpus in published.items()} == wanted
    listed = {(name, driver.gpu(device)) for name, device in node.claimed()}
    assert listed == {(name, gpu) for (name, _), gpus in published.items() for gpu in gpus}
    for name in ("two", "one"):
        assert cluster.claims("n0", name) == {gpu for owner, gpu in listed if owner == name}
    answer = invoke("drift", "-o", "json", "--kubeconfig", str(cluster.plane.kubeconfig()))
    assert json.loads(answer.stdout)["differences"] == []
    eventually(lambda: cluster.extender.metric("gpus_used_without_claim") == 0)
    for name in ("two", "one"):
        cluster.delete(name)
    eventually(lambda: seen(driver) == {})


def test_containers_get_the_planned_mig_devices(planned: tuple[GpuCluster, Nodes]) -> None:
    """Kubelet, agent and ledger agree on them, and kubectl names their pods."""
    cluster, nodes = planned
    (node,) = nodes.start({"n0": "dgx_a100"})
    parts = partitioned("n0", sorted(node.machine.uuids))
    driver = start_driver(node, *parts)
    observing(node)
    selectors = [{"cel": {"expression": selector_of("2g.10gb")}}]
    template(cluster.api, "gpus-2g", MIG_CLASS, count=2, selectors=selectors)
    pods = {"parts": "gpus-2g", "whole": "gpus-7"}
    for name, template_name in pods.items():
        item = claiming_pod(name, (1,), {})
        item["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = template_name
        cluster.submit(item)
        wait_running(cluster, name, within_seconds=PREPARE_SECONDS)
    inventory = read_inventory("n0", [read_slice(item) for item in parts])
    uuids = {device.id.name: uuid for uuid, device in {**inventory.gpus, **inventory.mig_devices}.items()}
    listed = {name: {device for owner, device in node.claimed() if owner == name} for name in pods}
    assert {name: len(devices) for name, devices in listed.items()} == {"parts": 2, "whole": 7}
    for name, devices in listed.items():
        assert cluster.claims("n0", name) == {uuids[device] for device in devices}

    def agrees() -> bool:
        observed = decode_observed(cluster.api.get(f"{NODES}/n0")["metadata"]["annotations"][keys.OBSERVED])
        return {user.name: set(user.devices) for user in observed.claimed} == listed

    eventually(agrees)
    answer = invoke("node", "n0", "-o", "json", "--kubeconfig", str(cluster.plane.kubeconfig()))
    shown = {each["uuid"]: each["pod"] for each in json.loads(answer.stdout)["slices"] if each["pod"]}
    assert shown == {uuids[device]: "default/parts" for device in listed["parts"]}
    answer = invoke("drift", "-o", "json", "--kubeconfig", str(cluster.plane.kubeconfig()))
    assert json.loads(answer.stdout)["differences"] == []
    eventually(lambda: cluster.extender.metric("gpus_used_without_claim") == 0)
    assert driver.refused() == []
    for name in pods:
        cluster.delete(name)
    eventually(lambda: not cluster.ledger("n0").claims)


def test_containers_get_exactly_the_planned_devices_though_the_planner_is_killed(
    planned: tuple[GpuCluster, Nodes], rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Pods of 1 to 8 GPUs in up to three containers, and gangs; ended claims free their devices, and no ledger keeps any."""
    cluster, nodes = planned
    drivers = [start_driver(node) for node in nodes.start(MACHINES)]
    for driver in drivers:
        observing(driver.node)
    pods = rounds(30, 1000)
    churn = ClaimChurn(cluster, drivers, pods, rounds(3, 20), Random(0))
    with recorded(cluster.api, [CLAIMS]) as claims:
        eventually(churn.step, 30.0 * pods)
    eventually(lambda: not churn.left())
    assert (churn.wrong, churn.refused(), ever_twice(claims)) == ([], [], set())
    assert (len(churn.judged), churn.killed) == (pods, churn.kills)
    figure(
        f"{pods} pods with claims on {len(drivers)} real kubelets, planner killed {churn.killed} times: each container got "
        "the planned devices, no device twice, and nothing is left"
    )
