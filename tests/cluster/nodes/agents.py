"""Our agent on a node of the tests: the real program, with the rights of the chart's agent."""

import sysconfig
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import yaml

from benchmarks.processes.process import free_port
from tests.cluster.agent_pod import AGENT, create_agent_pod
from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes.namespaces import NodeProcess
from tests.cluster.nodes.node import GpuNode
from tests.cluster.polling import eventually
from tests.manifests.rendered import NAMESPACE
from topology.annotations.keys import SHARE_RESOURCE, STATUS
from topology.annotations.status_codec import decode_status
from topology.node.status import DevicePluginStatus

PROGRAM = Path(sysconfig.get_path("scripts")) / "gputopo-agent"
DEADLINE = "400ms"
"""For an answer to the kubelet, as the agent has it by default."""
PATIENT = "5s"
"""The same where nodes, control plane and other tests share one machine: in time for whoever has to wait for its processors."""


def allow_agent_pods(plane: ControlPlane) -> None:
    """Let the pods that stand for agents into their namespace: they are probed at an address of the host's."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    plane.admin.patch(f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": labels}})


class AgentProcess(NodeProcess):
    """The real `gputopo-agent` on a node, with the rights of the chart's agent on that node; it looks at the GPUs every second.

    Args:
        node: where gputopo is installed.
        mode: `enforce`, and it is the device plugin; `observe`, and it reports what another one does.
        deadline: how long a kubelet may have to wait for an answer.
        sections: further ones of its configuration.
        through: a command that runs it, instead of the shell's.

    """

    stop_grace_seconds = 10.0
    """As the chart has it."""

    def __init__(
        self,
        node: GpuNode,
        mode: str,
        deadline: str = PATIENT,
        *,
        sections: Mapping[str, object] | None = None,
        through: Sequence[str] = (),
    ) -> None:
        port = free_port()
        self._plane, self._pod = node.plane, create_agent_pod(node.plane, node.name, port)
        kubeconfig = node.plane.service_account_kubeconfig(NAMESPACE, AGENT, self._pod)
        configuration = {
            "apiVersion": "config.gputopo.dev/v1alpha1",
            "kind": "AgentConfiguration",
            "nodeName": node.name,
            "mode": mode,
            "discovery": {"interval": "1s", "xidRecovery": "3s"},
            "enforce": {"deadline": deadline},
            "kubernetes": {"kubeconfig": str(kubeconfig)},
            "health": {"host": "127.0.0.1", "port": port},
            **(sections or {}),
        }
        file = node.state / "agent.yaml"
        file.write_text(yaml.safe_dump(configuration))
        self._url = f"http://127.0.0.1:{port}"
        super().__init__(
            "agent",
            node.inside,
            node.state,
            [*through, PROGRAM, "--config", file],
            node.machine.environment,
            f"{self._url}/readyz",
        )
        node.adopt(self)

    def run(self) -> None:
        """Start it, and return when it has published what the node is, and the cluster sees its pod ready."""
        super().run()
        eventually(self.is_seen_ready, within_seconds=60)

    def is_seen_ready(self) -> bool:
        """Whether the cluster believes that it is ready."""
        found = self._plane.admin.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{self._pod}")
        conditions = found["status"].get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def metrics(self) -> str:
        """Return what Prometheus would read."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def registrations(self) -> list[float]:
        """Return when it said that it had registered with the kubelet, over all its starts, in seconds since the epoch."""
        said = [line["ts"] for line in self.logged() if line.get("msg") == "registered with the kubelet"]
        return [datetime.fromisoformat(ts).timestamp() for ts in said]


def enforcing(node: GpuNode, deadline: str = PATIENT, **sections: Json) -> AgentProcess:
    """Start our agent as the node's device plugin, and return when the cluster sees the GPUs."""
    agent = AgentProcess(node, "enforce", deadline, sections=sections)
    agent.run()
    node.wait_allocatable(len(node.machine.uuids))
    return agent


def observing(node: GpuNode, **sections: object) -> AgentProcess:
    """Start our agent beside another device plugin, and return when it has published what the node is."""
    agent = AgentProcess(node, "observe", sections=sections)
    agent.run()
    return agent


def shares_gpus(node: GpuNode) -> bool:
    """Whether the cluster sees shares, and the node says that its GPUs may be shared: before that they may be taken back."""
    plugin = ready_plugin(node)
    may = plugin is not None and plugin.sharing is not None and plugin.sharing.max_gpus > 0
    return may and node.allocatable(SHARE_RESOURCE) > 0


def ready_plugin(node: GpuNode) -> DevicePluginStatus | None:
    """Return what the node's agent tells of its device plugin, once that is ready."""
    text = node.annotation(STATUS)
    plugin = decode_status(text).device_plugin if text else None
    return plugin if plugin and plugin.ready else None
