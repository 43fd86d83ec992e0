"""A whole cluster: control plane with all controllers, real nodes with containers, and a network between their pods."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.api import ApiError
from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane, new_state
from tests.cluster.nodes import node
from tests.cluster.nodes.containerd import containerd
from tests.cluster.nodes.images import write_archive
from tests.cluster.nodes.network import Network
from tests.cluster.nodes.node import GpuNode, Parts
from tests.cluster.objects import NODES, PODS, Json
from tests.cluster.polling import eventually

ROOT = Path(__file__).resolve().parents[2]

FLAGS: Mapping[str, object] = {
    **node.FLAGS,
    "disable-admission-plugins": "",
    "kubelet-preferred-address-types": "InternalIP",
}
"""As clusters have it: pods have accounts, and nodes their taints."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What runs, and what a person sees of it with kubectl."""

    plane: ControlPlane
    nodes: Sequence[GpuNode]

    def kubectl(self, *words: str | Path) -> str:
        """Return what kubectl prints, our plugin on its PATH; it must end well."""
        return self.run_kubectl(*words).stdout

    def run_kubectl(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Return the same, and what it says on stderr."""
        path = os.pathsep.join([str(self.plane.binaries), sysconfig.get_path("scripts"), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(self.plane.kubeconfig())}
        ended = subprocess.run(["kubectl", *words], env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended

    def wait_running(self, pod: str, within_seconds: float = 60.0) -> Json:
        """Return a pod of the namespace `default` when all of its containers run."""

        def found() -> Json:
            seen = self.plane.admin.get(f"{PODS}/{pod}")
            statuses = seen["status"].get("containerStatuses", ())
            return seen if statuses and all("running" in each["state"] for each in statuses) else {}

        return eventually(found, within_seconds)

    def delete_pods(self) -> None:
        """Delete all pods of the namespace `default`, and return when they are gone."""
        self.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait")

    def make_namespace(self, name: str) -> None:
        """Make a namespace, if it is not there."""
        with suppress(ApiError):
            self.plane.admin.post("/api/v1/namespaces", {"metadata": {"name": name}})

    def make_secret(self, namespace: str, name: str, files: Mapping[str, Path]) -> None:
        """Make a secret of these files, anew if it is there."""
        self.kubectl("delete", "secret", name, f"--namespace={namespace}", "--ignore-not-found")
        content = [f"--from-file={key}={file}" for key, file in files.items()]
        self.kubectl("create", "secret", "generic", name, f"--namespace={namespace}", *content)

    def node_of(self, pod: Json) -> GpuNode:
        """Return where a pod runs."""
        return next(each for each in self.nodes if each.name == pod["spec"]["nodeName"])


@dataclass(frozen=True, slots=True)
class Programs:
    """Folders of what a cluster is made of, beside the nodes' parts."""

    containerd: Path
    runc: Path
    network: Path


@contextmanager
def running(parts: Parts, programs: Programs, images: Sequence[Path], machines: Mapping[str, str]) -> Iterator[Cluster]:
    """Run a cluster with these nodes for the length of a `with` block; they are labelled as GPU nodes are.

    Every node has these images, and one with the tested kube-scheduler under the name that the chart gives it.
    """
    state = new_state()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, state, ignore_errors=True)
        network = Network(state, programs.network)
        stack.callback(network.stop)
        network.start()
        # Kubelets answer nobody but the API server.
        subprocess.run([parts.tools / "certify", state], check=True)
        known = {"kubelet-client-certificate": state / "client.crt", "kubelet-client-key": state / "client.key"}
        flags = {**FLAGS, **known, "service-cluster-ip-range": network.services}
        plane = ControlPlane(parts.kubernetes, node.users([*machines]), flags, network.gateway, state)
        stack.enter_context(plane)
        plane.start_controllers()
        enter: list[str | Path] = ["nsenter", f"--net=/proc/{network.pid}/ns/net"]
        serve = [*enter, sys.executable, "-m", "tests.installed.services", plane.kubeconfig(), network.nodes]
        services = Component("services", ["env", f"--chdir={ROOT}", *serve], state, ready_url="")
        stack.callback(services.kill)
        services.start()
        plane.start_scheduler()
        runtime = containerd(programs.containerd, programs.runc, network, [*images, _scheduler_image(plane)])
        settings = {
            "address": network.nodes,
            "clusterDNS": [network.nodes],
            "clusterDomain": "cluster.local",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(state / "ca.crt")},
            },
        }
        nodes = []
        for name, machine in machines.items():
            started = GpuNode(plane, name, machine, parts, runtime, settings, network)
            nodes.append(stack.enter_context(started))
            labels = {"nvidia.com/gpu.present": "true"}
            plane.admin.patch(f"{NODES}/{name}", {"metadata": {"labels": labels}})
        yield Cluster(plane, nodes)


def _scheduler_image(plane: ControlPlane) -> Path:
    version, archive = plane.admin.get("/version")["gitVersion"], plane.state / "kube-scheduler.tar"
    program = (plane.binaries / "kube-scheduler").resolve()
    write_archive(archive, [f"registry.k8s.io/kube-scheduler:{version}"], program, "/kube-scheduler")
    return archive
