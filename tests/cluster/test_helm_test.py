"""`helm test` on the real API server: the rights of its pod suffice, it ends as the program does, and leaves no rights behind."""

import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import kube_settings
from benchmarks.simulated.fleet import SimulatedNode, node_object
from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import install_chart
from tests.cluster.objects import NODES
from tests.cluster.polling import eventually
from tests.manifests.helm import executable
from tests.manifests.rendered import NAMESPACE

POD = f"/api/v1/namespaces/{NAMESPACE}/pods/gputopo-test"
APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


@pytest.fixture(scope="module")
def installed(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane with one GPU node, and install the chart."""
    with ControlPlane(binaries) as own:
        install_chart(own)
        own.admin.post(NODES, node_object(SimulatedNode("n1", "hgx-h100")))
        yield own


def set_status(own: ControlPlane, path: str, status: Json) -> None:
    """Say what a controller or a kubelet would say of an object."""
    own.admin.patch(f"{path}/status", {"status": status})


def let_pods_be_ready(own: ControlPlane, ready: int) -> None:
    """Report that many ready pods of the scheduler, and no node that needs an agent."""
    scheduler = own.admin.get(f"{APPS}/deployments/gputopo-scheduler")["metadata"]["generation"]
    agent = own.admin.get(f"{APPS}/daemonsets/gputopo-agent")["metadata"]["generation"]
    replicas = {"replicas": 2, "readyReplicas": ready, "updatedReplicas": 2, "observedGeneration": scheduler}
    set_status(own, f"{APPS}/deployments/gputopo-scheduler", replicas)
    none = {"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}
    set_status(own, f"{APPS}/daemonsets/gputopo-agent", {**none, "observedGeneration": agent})


def run_container(own: ControlPlane, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the container of the test's pod as its account, as a kubelet would, and report how it ended."""
    pod = own.admin.get(POD)
    [container] = pod["spec"]["containers"]
    account = pod["spec"]["serviceAccountName"]
    (folder / "token").write_text(own.service_account_token(NAMESPACE, account, "gputopo-test"))
    (folder / "ca.crt").write_bytes(kube_settings.ca_file(own.state).read_bytes())
    environment = {
        "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
        "ACCOUNT": str(folder),
        "API_SERVER": own.url,
        "KUBECONFIG": str(own.service_account_kubeconfig(NAMESPACE, account, "gputopo-test")),
        **{variable["name"]: variable["value"] for variable in container["env"]},
    }
    command = [*container["command"], *container["args"]]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    set_status(own, POD, {"phase": "Failed" if ended.returncode else "Succeeded"})
    return ended


def is_new(own: ControlPlane) -> bool:
    """Whether the pod of a test is there that has not run."""
    pods = own.admin.list(f"/api/v1/namespaces/{NAMESPACE}/pods")
    return any(pod["metadata"]["name"] == "gputopo-test" and pod["status"]["phase"] == "Pending" for pod in pods)


def helm_test(own: ControlPlane, folder: Path) -> tuple[int, subprocess.CompletedProcess[str]]:
    """Return how Helm ended, and how the container did."""
    words = ("test", "gputopo", "--namespace", NAMESPACE, "--kubeconfig", own.kubeconfig())
    with subprocess.Popen([executable(), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as helm:
        eventually(lambda: is_new(own))
        ended = run_container(own, folder)
        return helm.wait(60), ended


def roles(own: ControlPlane) -> set[str]:
    """Return the names of all cluster roles of ours."""
    return {role["metadata"]["name"] for role in own.admin.list(ROLES) if "gputopo" in role["metadata"]["name"]}


def test_an_installation_at_work_passes(installed: ControlPlane, tmp_path: Path) -> None:
    """Its account may read all that `status` reads, and has no rights afterwards."""
    before = roles(installed)
    let_pods_be_ready(installed, 2)
    helm, container = helm_test(installed, tmp_path)
    assert (helm, container.returncode) == (0, 0), container.stdout + container.stderr
    assert "gputopo-scheduler: 2 of 2 pods ready" in container.stdout
    assert re.search(r"^policies: ([0-9]+) of \1 bound$", container.stdout, re.MULTILINE)
    assert "no right" not in container.stdout
    assert roles(installed) == before


def test_an_installation_without_ready_pods_fails(installed: ControlPlane, tmp_path: Path) -> None:
    """Helm says so by its exit status, and the pod's log says which."""
    let_pods_be_ready(installed, 1)
    helm, container = helm_test(installed, tmp_path)
    assert (helm, container.returncode) == (1, 1)
    assert "gputopo-scheduler: 1 of 2 pods ready" in container.stdout
