"""`kubectl gputopo` through the real kubectl and the real API server."""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from benchmarks.simulated.fleet import SimulatedNode, node_object
from extender.kubectl.cli import app
from tests.cluster.component import Component
from tests.cluster.control_plane import ADMIN, ControlPlane, on_host
from tests.cluster.extender_process import SCHEDULER_POD, ExtenderProcess
from tests.cluster.gpu_cluster import wants
from tests.cluster.installation import Installation
from tests.cluster.objects import NODES, PODS, node, pod
from tests.cluster.polling import eventually
from tests.cluster.sweep import sweep
from tests.invoking import call
from tests.manifests.rendered import NAMESPACE
from topology.annotations import keys

ON_NODES = (keys.TOPOLOGY, keys.TOPOLOGY_DIGEST, keys.STATUS, keys.OBSERVED, keys.LEDGER, keys.LOOK)
ON_PODS = (keys.PLACEMENT, keys.FENCE)


def kubectl(cluster: ControlPlane, *arguments: str, user: str = ADMIN) -> subprocess.CompletedProcess[str]:
    """Type it as a user does, with the plugin on the PATH."""
    path = os.pathsep.join([str(cluster.binaries), sysconfig.get_path("scripts"), os.environ["PATH"]])
    kubeconfig = cluster.kubeconfig(user)
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig)}
    return subprocess.run(["kubectl", *arguments], env=environment, capture_output=True, text=True, check=False)


def test_cleanup_takes_all_that_is_ours_and_nothing_else(cluster: ControlPlane) -> None:
    """Whoever may not list hears so; the first look changes nothing, and the last one finds nothing."""
    mine = {keys.REQUIRED_AFFINITY: "nvlink"}
    cluster.admin.post(NODES, node("n1", 8, mine | dict.fromkeys(ON_NODES, "x")))
    said = {"type": keys.GPUS_HEALTHY, "status": "False", "reason": "GPUsSick", "message": "GPU 0"}
    cluster.admin.patch(f"{NODES}/n1/status", {"status": {"conditions": [said]}}, "strategic")
    cluster.admin.post(PODS, pod("train", 1, mine | dict.fromkeys(ON_PODS, "x"), nodeName="n1"))
    waited = {"type": keys.PLANNED_CONDITION, "status": "False", "reason": "NoRoom"}
    cluster.admin.patch(f"{PODS}/train/status", {"status": {"conditions": [waited]}}, "strategic")
    verb = ("gputopo", "cleanup")
    refused = kubectl(cluster, *verb, "--yes", user="nobody")
    shown, removed, again = kubectl(cluster, *verb), kubectl(cluster, *verb, "--yes"), kubectl(cluster, *verb)
    assert (refused.returncode, shown.returncode, removed.returncode, again.returncode) == (2, 1, 0, 0)
    assert all(key in shown.stdout for key in (*ON_NODES, *ON_PODS, keys.GPUS_HEALTHY, keys.PLANNED_CONDITION))
    left = [cluster.admin.get(f"{NODES}/n1"), cluster.admin.get(f"{PODS}/train")]
    assert [item["metadata"]["annotations"] for item in left] == [mine, mine]
    assert [each["type"] for each in left[0]["status"]["conditions"]] == ["Ready"]
    assert keys.PLANNED_CONDITION not in {each["type"] for each in left[1]["status"].get("conditions", [])}


def test_the_tab_key_completes_verbs_and_names(cluster: ControlPlane) -> None:
    """Kubectl calls `kubectl_complete-gputopo`, and hands on what it says."""
    cluster.admin.post(PODS, pod("train", 1))
    verbs = kubectl(cluster, "__complete", "gputopo", "wh").stdout.splitlines()
    assert [line.split("\t")[0] for line in verbs] == ["what-if", "why", ":4"]
    assert kubectl(cluster, "__complete", "gputopo", "why", "tr").stdout.split() == ["train", ":4"]


Replica = tuple[Component, ExtenderProcess]
"""The containers of a pod of the chart's scheduler."""


@contextmanager
def two_replicas(installation: Installation, folder: Path) -> Iterator[dict[str, Replica]]:
    """Run the chart's scheduler in two pods, by name; a kubectl in `folder` forwards their ports as the kubelet would."""
    api, replicas = installation.plane.admin, dict[str, Replica]()
    lines = ["#!/bin/sh", f'echo "$3" >> {folder}/forwarded', 'case "$3" in']
    with ExitStack() as stack:
        stack.callback(sweep, api, keep=[NAMESPACE])
        stack.callback(installation.plane.stop_schedulers)
        api.post(NODES, node_object(SimulatedNode("h100", "hgx-h100")))
        for name in (f"{SCHEDULER_POD}-7d9c5b8f6c-aaaaa", f"{SCHEDULER_POD}-7d9c5b8f6c-bbbbb"):
            api.post(f"/api/v1/namespaces/{NAMESPACE}/pods", scheduler_pod(name))
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"
            api.patch(path, {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
            extender = stack.enter_context(installation.extender().running())
            replicas[name] = installation.start_scheduler(extender, hostname=name), extender
            lines.append(f'pod/{name}) echo "Forwarding from {extender.url.removeprefix("http://")} -> 8888";;')
        (folder / "kubectl").write_text("\n".join([*lines, "esac", "exec sleep 600", ""]))
        (folder / "kubectl").chmod(0o755)
        yield replicas


def scheduler_pod(name: str) -> dict[str, object]:
    """Return a pod as the chart's Deployment makes it, without what only a kubelet reads."""
    labels = {"app.kubernetes.io/name": "gputopo", "app.kubernetes.io/component": "scheduler"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name.rpartition("-")[0], "uid": "u"}
    metadata = {"name": name, "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    return {"metadata": metadata, "spec": pod(name, 0)["spec"]}


def who_bound(name: str, replicas: dict[str, Replica]) -> list[str]:
    """Return the replicas whose extenders have bound a pod; each says so after the Binding."""
    return [replica for replica, (_, extender) in replicas.items() if name in str(extender.said("bind"))]


def may_set_hostname() -> bool:
    """Whether this machine lets us have user namespaces."""
    command = [*on_host("replica"), "true"]
    quiet = subprocess.DEVNULL
    return shutil.which(command[0]) is not None and subprocess.call(command, stdout=quiet, stderr=quiet) == 0


def test_auto_asks_the_extender_of_the_replica_that_leads(installation: Installation, tmp_path: Path) -> None:
    """By a real election; and that of the other one, once that one leads."""
    if not may_set_hostname():
        pytest.skip("no user namespaces, in which a process has a hostname of its own")
    plane = installation.plane
    with two_replicas(installation, tmp_path) as replicas:
        ask = ("pods", "--extender", "auto", "--kubeconfig", str(plane.kubeconfig()))
        for number in range(2):
            name = f"train-{number}"
            plane.admin.post(PODS, wants(name, 2))
            eventually(lambda name=name: "nodeName" in plane.admin.get(f"{PODS}/{name}")["spec"])  # type: ignore[misc]
            answer = call(app, *ask, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
            assert (answer.returncode, answer.stderr) == (0, "") and name in answer.stdout
            forwarded = (tmp_path / "forwarded").read_text().split()[-1].removeprefix("pod/")
            assert [forwarded] == eventually(lambda name=name: who_bound(name, replicas))  # type: ignore[misc]
            replicas[forwarded][0].stop()
