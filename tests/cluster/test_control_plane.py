"""The control plane that the other cluster tests stand on is the real one, and it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.processes.kube_binaries import OVERRIDE
from tests.cluster.api import ApiError
from tests.cluster.binaries import kubernetes_version, wanted
from tests.cluster.component import StartFailed
from tests.cluster.control_plane import ControlPlane
from tests.cluster.objects import NODES, PODS, node, pod
from tests.cluster.polling import eventually
from tests.cluster.sweep import sweep

HOLDER = """
import sys, time
from pathlib import Path
from tests.cluster.control_plane import ControlPlane
with ControlPlane(Path(sys.argv[1])) as held:
    held.start_scheduler()
    print(held.state, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(OVERRIDE in os.environ, reason=f"{OVERRIDE} is set: the version is the operator's choice")
def test_every_component_says_the_pinned_version(cluster: ControlPlane, binaries: Path) -> None:
    """The API server, the scheduler and kubectl agree on the version that go.mod pins."""
    scheduler = subprocess.check_output([binaries / "kube-scheduler", "--version"], text=True)
    kubectl = subprocess.check_output([binaries / "kubectl", "version", "--client", "-o", "json"], text=True)
    assert cluster.admin.get("/version")["gitVersion"] == kubernetes_version(wanted())
    assert scheduler.split() == ["Kubernetes", kubernetes_version(wanted())]
    assert json.loads(kubectl)["clientVersion"]["gitVersion"] == kubernetes_version(wanted())


def test_rbac_refuses_a_user_without_rights(cluster: ControlPlane) -> None:
    """A known token says who someone is, not what they may do."""
    with pytest.raises(ApiError) as refusal:
        cluster.api("nobody").list(NODES)
    assert (refusal.value.code, refusal.value.reason) == (403, "Forbidden")


def test_scheduler_binds_a_gpu_pod_to_the_node_that_has_gpus(cluster: ControlPlane) -> None:
    """A Node made with its status in one POST is all that the real scheduler needs."""
    cluster.admin.post(NODES, node("cpu-only"))
    cluster.admin.post(NODES, node("eight-gpus", gpus=8))
    cluster.start_scheduler()
    cluster.admin.post(PODS, pod("wants-four", gpus=4))
    assert eventually(lambda: bound_to(cluster, "wants-four")) == "eight-gpus"


def test_two_schedulers_serve_their_own_pods(cluster: ControlPlane) -> None:
    """Each scheduler binds the pods that name one of its profiles."""
    cluster.admin.post(NODES, node("n1"))
    cluster.start_scheduler()
    cluster.start_scheduler({"profiles": [{"schedulerName": "second"}]})
    cluster.admin.post(PODS, pod("a"))
    cluster.admin.post(PODS, pod("b", schedulerName="second"))
    eventually(lambda: binders(cluster) == {"a": "default-scheduler", "b": "second"})


def test_scheduler_that_refuses_its_configuration_says_why(cluster: ControlPlane) -> None:
    """A failed start ends at once and carries the component's own words."""
    with pytest.raises(StartFailed, match="unknown field"):
        cluster.start_scheduler({"profile": []})


def test_threads_that_come_and_go_leave_no_connections(cluster: ControlPlane) -> None:
    """A client keeps those that it needs at one time."""

    def create(first: int) -> int:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: cluster.admin.post(NODES, node(f"n{number}")), range(first, first + 8)))
        return sum(link.is_socket() for link in Path("/proc/self/fd").iterdir())

    counts = [create(8 * number) for number in range(6)]
    assert max(counts) - counts[0] < 4


def test_sweep_removes_what_a_test_created(cluster: ControlPlane) -> None:
    """Nodes, bound pods and whole namespaces are gone, although no controller or kubelet helps."""
    cluster.admin.post(NODES, node("n1"))
    cluster.admin.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    cluster.admin.post("/api/v1/namespaces/team/pods", pod("p", nodeName="n1"))
    sweep(cluster.admin)
    assert cluster.admin.list("/api/v1/pods") == cluster.admin.list(NODES) == []
    assert "team" not in {namespace["metadata"]["name"] for namespace in cluster.admin.list("/api/v1/namespaces")}


def test_watch_shows_a_creation(cluster: ControlPlane) -> None:
    """The test client's watch yields raw events from the given resource version on."""
    start = cluster.admin.get(NODES)["metadata"]["resourceVersion"]
    cluster.admin.post(NODES, node("n1"))
    event = next(cluster.admin.watch(NODES, resourceVersion=start))
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "n1")


def test_service_account_token_carries_its_own_rights(cluster: ControlPlane, binaries: Path) -> None:
    """A kubeconfig of a ServiceAccount authenticates as exactly that account."""
    cluster.admin.post("/api/v1/namespaces/kube-public/serviceaccounts", {"metadata": {"name": "robot"}})
    kubeconfig = cluster.service_account_kubeconfig("kube-public", "robot")
    command = f"{binaries / 'kubectl'} --kubeconfig {kubeconfig} auth whoami -o json"
    who = json.loads(subprocess.check_output(command.split()))
    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:kube-public:robot"


def test_state_survives_kill_9_of_etcd_and_api_server(binaries: Path) -> None:
    """Components can be killed and started again on the same ports and data."""
    with ControlPlane(binaries) as own:
        own.admin.post(NODES, node("n1"))
        for component in (own.etcd, own.apiserver):
            component.kill()
        for component in (own.etcd, own.apiserver):
            component.start()
        own.apiserver.wait_ready()
        own.admin.close()
        assert own.admin.get(f"{NODES}/n1")["metadata"]["name"] == "n1"


def test_nothing_is_left_after_a_stop(binaries: Path) -> None:
    """Processes and state folder are gone when the context ends."""
    with ControlPlane(binaries) as own:
        own.start_scheduler()
        assert len(processes_of(own.state)) == 2 * len(own.components)
    assert (processes_of(own.state), own.state.exists()) == ([], False)


def test_nothing_is_left_when_the_owner_is_killed(binaries: Path) -> None:
    """Even SIGKILL on the process that holds a control plane ends all of it and removes its folder."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, binaries], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        state = Path(owner.stdout.readline().strip())
        assert len(processes_of(state)) == 6
        owner.send_signal(signal.SIGKILL)
    eventually(lambda: not processes_of(state) and not state.exists())


def bound_to(cluster: ControlPlane, name: str) -> str | None:
    node_name: str | None = cluster.admin.get(f"{PODS}/{name}")["spec"].get("nodeName")
    return node_name


def binders(cluster: ControlPlane) -> dict[str, str]:
    """Return who reported each pod as scheduled."""
    events = cluster.admin.list("/apis/events.k8s.io/v1/events", fieldSelector="reason=Scheduled")
    return {event["regarding"]["name"]: event["reportingController"] for event in events}


def processes_of(state: Path) -> list[str]:
    """Return the command lines, of all processes alive, that name the state folder."""
    commands = subprocess.check_output(["ps", "-e", "-ww", "-o", "args="], text=True).splitlines()
    return [command for command in commands if str(state) in command]
