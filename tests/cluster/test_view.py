"""The view on the real API server, with the chart's rights alone: readers send tokens, and see what RBAC lets them."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from benchmarks.processes.process import free_port
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, node_object
from tests.cluster.agent_pod import create_agent_pod
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import SCHEDULER_POD, in_its_container
from tests.cluster.installation import install_chart
from tests.cluster.objects import NODES
from tests.cluster.playground import own_address
from tests.cluster.polling import eventually
from tests.cluster.test_rbac import EXTENDER
from tests.manifests.rendered import NAMESPACE
from tests.manifests.test_chart_planner import PLANNER

VIEW = "extender.config.view.enabled=true"
SAMPLES = "extender.config.view.samples=true"
H100 = SimulatedNode("h100", "hgx-h100")
OURS, THEIRS = "team-a", "team-b"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SUBJECTS = {
    name: {"kind": "ServiceAccount", "name": name, "namespace": OURS} for name in ("member", "operator", "outsider")
}
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reads-pods"}
RULES = [{"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]}]


@pytest.fixture(scope="module")
def installed(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane with the planner and its view, whose account has no rights of kube-scheduler, and with readers."""
    with ControlPlane(binaries) as own:
        install_chart(own, *PLANNER, VIEW, SAMPLES)
        own.admin.post(NODES, node_object(H100))
        for namespace in (OURS, THEIRS):
            own.admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
            own.admin.post(f"/api/v1/namespaces/{namespace}/pods", gpu_pod(f"pod-of-{namespace}", 2))
        for name in SUBJECTS:
            own.admin.post(f"/api/v1/namespaces/{OURS}/serviceaccounts", {"metadata": {"name": name}})
        own.admin.post(f"{RBAC}/clusterroles", {"metadata": {"name": ROLE["name"]}, "rules": RULES})
        bind(own, f"{RBAC}/namespaces/{OURS}/rolebindings", "member")
        bind(own, f"{RBAC}/clusterrolebindings", "operator")
        yield own


def bind(own: ControlPlane, path: str, name: str) -> None:
    """Let a reader list pods and events."""
    own.admin.post(path, {"metadata": {"name": name}, "roleRef": ROLE, "subjects": [SUBJECTS[name]]})


@contextmanager
def view(own: ControlPlane) -> Iterator[str]:
    """Run the extender's container as its account; give the address of the view."""
    kubeconfig, port = own.service_account_kubeconfig(NAMESPACE, EXTENDER), free_port()
    text = own.admin.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{SCHEDULER_POD}")["data"]["extender.yaml"]
    settings = {"listen.port": free_port(), "view.port": port, "kubernetes.kubeconfig": kubeconfig}
    with in_its_container(own.state, text, settings).running():
        yield f"http://127.0.0.1:{port}"


def read(url: str, token: str) -> tuple[int, str]:
    """Return status and text of a page."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def test_readers_see_the_pods_that_rbac_lets_them_list(installed: ControlPlane) -> None:
    """One with the role in a namespace, one with it everywhere, one without; a forged token and none are refused.

    All see the node and its counts, and the events of a pod are read only by whom they may be.
    """
    tokens = {name: installed.service_account_token(OURS, name) for name in SUBJECTS}
    pods = {namespace: f"pod-of-{namespace}" for namespace in (OURS, THEIRS)}
    involved = {"kind": "Pod", "namespace": OURS, "name": pods[OURS]}
    involved["uid"] = installed.admin.get(f"/api/v1/namespaces/{OURS}/pods/{pods[OURS]}")["metadata"]["uid"]
    event = {"metadata": {"name": "e"}, "involvedObject": involved, "reason": "Tested", "message": "said of the pod"}
    installed.admin.post(f"/api/v1/namespaces/{OURS}/events", event)
    with view(installed) as url:
        shown = {name: read(f"{url}/pods", token) for name, token in tokens.items()}
        seen = {name: {pod for pod in pods.values() if pod in text} for name, (_, text) in shown.items()}
        assert seen == {"member": {pods[OURS]}, "operator": {*pods.values()}, "outsider": set()}
        assert {status for status, _ in shown.values()} == {200}
        assert all("/nodes/h100" in read(f"{url}/nodes", token)[1] for token in tokens.values())
        page = f"{url}/pods/{OURS}/{pods[OURS]}"
        assert "said of the pod" in read(page, tokens["member"])[1]
        assert [read(page, token)[0] for token in (tokens["outsider"], "forged", tokens["member"][:-5])] == [
            404,
            401,
            401,
        ]


class Metrics(BaseHTTPRequestHandler):
    """An agent's metrics of one GPU."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f'gputopo_gpu_temperature_celsius{{uuid="{H100.topology.gpus[0].uuid}"}} 67'.encode())

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


@contextmanager
def agent_at_work(own: ControlPlane, address: str) -> Iterator[None]:
    """Have an agent's pod on the node that is ready and serves metrics."""
    with ThreadingHTTPServer((address, 0), Metrics) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        pod = create_agent_pod(own, H100.name, metrics=(address, server.server_port))
        state = {"name": "agent", "ready": True, "image": "", "imageID": "", "restartCount": 0}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}"
        own.admin.patch(f"{path}/status", {"status": {"containerStatuses": [state]}})
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            own.admin.delete(path)


def test_a_nodes_page_shows_what_its_agent_tells_through_the_api_server(installed: ControlPlane) -> None:
    """With the chart's rights alone, and to a reader who sees no pod."""
    address = own_address()
    if not address:
        pytest.skip("this machine has no address but loopback, to which an API server forwards nothing")
    token = installed.service_account_token(OURS, "outsider")
    with agent_at_work(installed, address), view(installed) as url:
        eventually(lambda: "67 °C" in read(f"{url}/nodes/{H100.name}", token)[1])
