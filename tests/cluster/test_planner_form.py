"""The queue without a kube-scheduler of the chart: its planner, with its own rights only, and the cluster's own scheduler."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.processes.process import free_port
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, node_object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import SCHEDULER_POD, in_its_container
from tests.cluster.installation import install_chart
from tests.cluster.objects import NODES, PODS
from tests.cluster.polling import eventually
from tests.cluster.test_rbac import ACCOUNTS, EXTENDER, EXTENDERS, NOBODY, rules
from tests.extender.plugin import invoke
from tests.manifests.rendered import NAMESPACE
from tests.manifests.test_chart_planner import PLANNER
from topology.annotations import keys


@pytest.fixture(scope="module")
def installed(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane, and install the planner alone into it."""
    with ControlPlane(binaries) as own:
        install_chart(own, *PLANNER)
        own.admin.post(ACCOUNTS, {"metadata": {"name": NOBODY}})
        for name in ("h100-a", "h100-b"):
            own.admin.post(NODES, node_object(SimulatedNode(name, "hgx-h100")))
        yield own


@contextmanager
def planner(own: ControlPlane) -> Iterator[None]:
    """Run the planner's container as its account."""
    kubeconfig = own.service_account_kubeconfig(NAMESPACE, EXTENDER)
    text = own.admin.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{SCHEDULER_POD}")["data"]["extender.yaml"]
    settings = {"listen.port": free_port(), "kubernetes.kubeconfig": kubeconfig}
    with in_its_container(own.state, text, settings).running():
        yield


def test_the_clusters_own_scheduler_binds_a_gang_where_it_is_planned(installed: ControlPlane) -> None:
    """Its pods name no scheduler. Each has a placement record, as pods of our scheduler have."""
    words = {keys.GROUP: "train", keys.GROUP_SIZE: "2", keys.GANG: "required"}
    gate = [{"name": keys.PLAN_GATE}]
    with planner(installed):
        installed.start_scheduler()
        for name in ("train-0", "train-1"):
            pod = gpu_pod(name, 8, words, schedulingGates=gate)
            pod["spec"].pop("schedulerName", None)
            installed.admin.post(PODS, pod)

        def are_placed() -> bool:
            pods = installed.admin.list(PODS)
            return all(keys.PLACEMENT in pod["metadata"]["annotations"] and pod["spec"].get("nodeName") for pod in pods)

        eventually(are_placed)
        installed.stop_schedulers()
        said = invoke(
            "status", "--kubeconfig", str(installed.kubeconfig()), "--scheduler-name=default-scheduler"
        ).stdout
    assert re.search(rf"^queue: 0 waiting; planned by {NAMESPACE}/", said, re.MULTILINE)
    assert "nothing needs you" in said
    pods = installed.admin.list(PODS)
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"default-scheduler"}
    assert [pod["spec"]["nodeName"] for pod in pods] == [pod["metadata"]["annotations"][keys.PLANNED] for pod in pods]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"h100-a", "h100-b"}


def test_sec3_the_planner_may_patch_and_evict_pods_and_bind_none(installed: ControlPlane) -> None:
    """Beside that it has the extender's rights, by every right that the API server counts out."""
    needed = {(verb, "", resource) for verb, resource in EXTENDERS if resource != "pods/binding"}
    of_queue = {("patch", "", "pods"), ("create", "", "pods/eviction")}
    assert rules(installed, EXTENDER) - rules(installed, NOBODY) == needed | of_queue
