"""The real kubelet of a node: its configuration on a machine that many of them share."""

import json
import ssl
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes.kube_settings import command
from benchmarks.processes.process import free_port
from tests.cluster.binaries import is_oldest
from tests.cluster.nodes.namespaces import Namespaces, NodeProcess

needs_a_newer_kubelet = pytest.mark.skipif(
    is_oldest(), reason="mode enforce needs a kubelet of Kubernetes 1.34 or later"
)
ROOT = "/var/lib/kubelet"
DEVICE_PLUGINS = f"{ROOT}/device-plugins"
"""A constant of the kubelet, whatever its root directory is."""


class Kubelet(NodeProcess):
    """A kubelet; `kill` and `start` again leaves what it started running.

    Args:
        node: its name.
        inside: the node's namespaces, in which all of its paths are its own.
        state: the node's folder; the root directory is its sub-folder `kubelet`.
        program: the kubelet.
        kubeconfig: of the node's own user.
        socket: of the container runtime, inside.
        settings: fields of the KubeletConfiguration, beside ours or instead of them.
        address: the node's; else it asks the name service for its own name, which takes long where there is none.
        root: its root directory, inside.

    """

    def __init__(
        self,
        node: str,
        inside: Namespaces,
        state: Path,
        program: Path,
        kubeconfig: Path,
        socket: str,
        settings: Mapping[str, Any],
        address: str = "",
        root: str = ROOT,
    ) -> None:
        health_port, self._port = free_port(), free_port()
        configuration = {**_configuration(socket, health_port), "port": self._port, **settings}
        (state / "kubelet" / "config.yaml").write_text(json.dumps(configuration, indent=2))
        flags = {
            "config": f"{root}/config.yaml",
            "kubeconfig": kubeconfig,
            "root-dir": root,
            "cert-dir": f"{root}/pki",
            "hostname-override": node,
            **({"node-ip": address} if address else {}),
        }
        super().__init__(
            "kubelet", inside, state, command(program, flags), ready_url=f"http://127.0.0.1:{health_port}/healthz"
        )

    def metrics(self) -> str:
        """Return what Prometheus would read."""
        unverified = ssl._create_unverified_context()
        url = f"https://127.0.0.1:{self._port}/metrics"
        with urllib.request.urlopen(url, timeout=60, context=unverified) as answer:
            text: str = answer.read().decode()
        return text


def _configuration(socket: str, health_port: int) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "address": "127.0.0.1",
        "healthzPort": health_port,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        # Kubelets side by side take each other's pod cgroups for orphans and kill what is in them.
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        # How soon a resource that was registered can be seen in the Node's status.
        "nodeStatusUpdateFrequency": "1s",
        "volumePluginDir": f"{ROOT}/volume-plugins",
        # The disk is the real one, and how full it is no business of the tests.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
    }
