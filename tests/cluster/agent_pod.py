"""The agent's pod on a node, as the DaemonSet's controller and the scheduler leave it: what a token of the agent is bound to."""

from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.manifests.objects import named
from tests.manifests.rendered import NAMESPACE

AGENT = "gputopo-agent"
"""The name of nearly everything that the chart makes for the agent."""


def create_agent_pod(
    plane: ControlPlane, node: str, port: int | None = None, *, metrics: tuple[str, int] | None = None
) -> str:
    """Create the pod on a node where gputopo is installed, and return its name.

    Its container does nothing: the agent is a process beside it.

    Args:
        plane: The cluster.
        node: The node's name.
        port: Where the agent answers probes: then a kubelet finds the pod ready when the process is.
        metrics: Address and port at which the API server reaches the agent's metrics.

    """
    template = named("DaemonSet", AGENT)["spec"]["template"]
    container: Json = {"name": "agent", "image": "gputopo.test/inside:1", "imagePullPolicy": "IfNotPresent"}
    if port is not None:
        probe = {"httpGet": {"host": "127.0.0.1", "port": port, "path": "/readyz"}, "periodSeconds": 1}
        container = {**container, "readinessProbe": probe}
    if metrics:
        container = {**container, "ports": [{"containerPort": metrics[1]}]}
    spec = {
        "nodeName": node,
        "serviceAccountName": template["spec"]["serviceAccountName"],
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    name = f"agent-on-{node}"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": name}, "spec": spec}
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    plane.admin.post(pods, pod)
    if metrics:
        plane.admin.patch(f"{pods}/{name}/status", {"status": {"podIP": metrics[0], "podIPs": [{"ip": metrics[0]}]}})
    return name
