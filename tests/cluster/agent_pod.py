"""The agent's pod on a node, as the DaemonSet's controller and the scheduler leave it: what a token of the agent is bound to."""

from tests.cluster.control_plane import ControlPlane
from tests.manifests.rendered import NAMESPACE

AGENT = "gputopo-agent"
"""The name of nearly everything that the chart makes for the agent."""


def create_agent_pod(plane: ControlPlane, node: str) -> str:
    """Create the pod on a node where gputopo is installed, and return its name."""
    template = plane.admin.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{AGENT}")["spec"]["template"]
    name = f"agent-on-{node}"
    pod = {"metadata": {**template["metadata"], "name": name}, "spec": {**template["spec"], "nodeName": node}}
    plane.admin.post(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    return name
