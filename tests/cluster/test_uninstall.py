"""`helm uninstall` on the real API server: it opens the gates of the queue, whose pods would wait for ever."""

import os
import subprocess
import sysconfig
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import install_chart
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import PODS, pod
from tests.cluster.polling import eventually
from tests.manifests.helm import executable
from tests.manifests.rendered import NAMESPACE
from topology.annotations import keys

OURS, THEIRS = {"name": keys.PLAN_GATE}, {"name": "kueue.x-k8s.io/admission"}
ELSEWHERE = "/api/v1/namespaces/ml/pods"
IN_NAMESPACE = f"/api/v1/namespaces/{NAMESPACE}"
KINDS = "deployments,jobs,serviceaccounts,configmaps,roles,clusterroles,clusterrolebindings,validatingadmissionpolicies"
SELECTOR = "--selector=app.kubernetes.io/instance=gputopo"


@pytest.fixture
def queue(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane with the controller of Jobs, install the chart with a queue, and let pods wait in it."""
    with ControlPlane(binaries) as own:
        own.start_controllers("job-controller")
        install_chart(own, "extender.config.queue.enabled=true")
        own.admin.post("/api/v1/namespaces", {"metadata": {"name": "ml"}})
        own.admin.post(PODS, pod("queued", 1, schedulingGates=[OURS]))
        own.admin.post(ELSEWHERE, pod("held", 1, schedulingGates=[THEIRS, OURS]))
        yield own


def gates(own: ControlPlane) -> list[list[Json]]:
    """Return the gates of both pods."""
    paths = (f"{PODS}/queued", f"{ELSEWHERE}/held")
    return [own.admin.get(path)["spec"].get("schedulingGates", []) for path in paths]


def left(own: ControlPlane) -> list[str]:
    """Return the objects of the chart."""
    return kubectl(own, "get", KINDS, "--all-namespaces", SELECTOR, "-o", "name").split()


def pods_of_hook(own: ControlPlane) -> list[Json]:
    """Return the pods of the hook's Job that have not ended."""
    selector = "batch.kubernetes.io/job-name=gputopo-open-gates"
    pods = own.admin.list(f"{IN_NAMESPACE}/pods", labelSelector=selector)
    return [item for item in pods if item["status"]["phase"] == "Pending"]


def run_container(own: ControlPlane, of: Json) -> subprocess.CompletedProcess[str]:
    """Run the container of a pod as its account, as a kubelet would, and report how it ended."""
    [container] = of["spec"]["containers"]
    kubeconfig = own.service_account_kubeconfig(NAMESPACE, of["spec"]["serviceAccountName"], of["metadata"]["name"])
    path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    environment = {"PATH": path, "KUBECONFIG": str(kubeconfig)}
    ended = subprocess.run(container["command"], env=environment, capture_output=True, text=True, check=False)
    phase = "Failed" if ended.returncode else "Succeeded"
    own.admin.patch(f"{IN_NAMESPACE}/pods/{of['metadata']['name']}/status", {"status": {"phase": phase}})
    return ended


def test_uninstall_opens_the_gates_and_leaves_nothing(queue: ControlPlane) -> None:
    """When the planner and the policies are gone; with rights that go, too. Gates of others stay."""
    command = ("uninstall", "gputopo", "--namespace", NAMESPACE, "--kubeconfig", str(queue.kubeconfig()))
    with subprocess.Popen([executable(), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as helm:
        [of_hook] = eventually(partial(pods_of_hook, queue))
        assert {name.rpartition("/")[2] for name in left(queue)} == {"gputopo-open-gates"}
        ended = run_container(queue, of_hook)
        assert helm.wait(60) == 0
    assert (ended.returncode, ended.stderr) == (0, "")
    assert gates(queue) == [[], [THEIRS]]
    assert left(queue) == []
