"""A cluster with the real Karpenter, whose kwok provider makes Node objects; the test plays what runs on these nodes.

There is a control plane of its own with gputopo installed, the rights and objects of the chart's `extender.autoscaling`, and the
controllers that placeholders need. Others of kube-controller-manager would call nodes without a kubelet dead.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.processes.process import free_port
from benchmarks.simulated.fleet import SimulatedNode, agent_annotations
from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.go_build import BinariesUnavailable
from tests.cluster.gpu_cluster import GpuCluster, at_work
from tests.cluster.installation import USERS, Installation
from tests.cluster.karpenter import program
from tests.cluster.kubectl import kubectl
from tests.cluster.objects import GPU, NODES
from tests.cluster.queueing import PLAIN, SETTINGS
from tests.manifests.helm import CHART, HelmUnavailable, helm
from tests.manifests.rendered import NAMESPACE

Json = dict[str, Any]

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
PLACEHOLDERS = "gputopo-placeholders"
JOBS = f"/apis/batch/v1/namespaces/{PLACEHOLDERS}/jobs"
PLACEHOLDER_PODS = f"/api/v1/namespaces/{PLACEHOLDERS}/pods"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
CONTROLLERS = (
    "job-controller",
    "garbage-collector-controller",
    "ttl-after-finished-controller",
    "resourcequota-controller",
    "namespace-controller",
    "serviceaccount-controller",
)
POOL: Json = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "gpus"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "any"},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
                "expireAfter": "Never",
            }
        },
        "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"},
    },
}
CLASS: Json = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "any"},
    "spec": {},
}


def instance_type(name: str, gpus: int, price: float) -> Json:
    """Return a type that the kwok provider offers in one zone."""
    where = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "zone-a"}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in where.items()]
    return {
        "name": name,
        "offerings": [{"Price": price, "Available": True, "Requirements": requirements}],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "96", "memory": "512Gi", "ephemeral-storage": "500Gi", GPU: str(gpus)},
    }


class Provisioning:
    """A control plane with gputopo and Karpenter, which may buy `types`."""

    def __init__(self, plane: ControlPlane, types: Sequence[Json]) -> None:
        self.plane = plane
        self.installation = Installation(plane)
        self.karpenter = self._karpenter(types)

    @property
    def components(self) -> list[Component]:
        """All processes but those of gputopo, for their logs."""
        return [*self.plane.components, self.karpenter]

    @contextmanager
    def at_work(self, **autoscaling: Any) -> Iterator[GpuCluster]:
        """Have an extender with these settings, and a scheduler that asks it, at work."""
        with at_work(self.installation, {"autoscaling": autoscaling, **DECLARED}) as lent:
            yield lent

    @contextmanager
    def planned(self, scheduler: str, **autoscaling: Any) -> Iterator[GpuCluster]:
        """Have a queue with these settings at work, and a kube-scheduler that asks its extender, or one that knows of none."""
        extender = self.installation.extender({"autoscaling": autoscaling, **DECLARED, **SETTINGS})
        with self.installation.upgraded("extender.config.queue.enabled=true"), extender.running():
            try:
                if scheduler == PLAIN:
                    self.plane.start_scheduler({"profiles": [{"schedulerName": PLAIN}]})
                else:
                    self.installation.start_scheduler(extender)
                yield GpuCluster(self.plane, extender)
            finally:
                self.plane.stop_schedulers()

    def install_autoscaling(self) -> None:
        """Apply what the chart adds with `extender.autoscaling.enabled`."""
        kubectl(self.plane, "apply", "-f", "-", given=_added_by_the_chart())

    def new_nodes(self) -> list[Json]:
        """Return the nodes that Karpenter has made."""
        return self.plane.admin.list(NODES, labelSelector="karpenter.sh/nodepool")

    def claims(self) -> list[Json]:
        """Return what Karpenter has bought, or is about to."""
        return self.plane.admin.list(CLAIMS)

    def placeholders(self) -> list[Json]:
        """Return the placeholders that exist."""
        return self.plane.admin.list(PLACEHOLDER_PODS)

    def boot(self, name: str) -> None:
        """Let the kubelet and the device plugin of a new node come up."""
        allocatable = self.plane.admin.get(f"{NODES}/{name}")["status"]["allocatable"]
        ready = {"type": "Ready", "status": "True", "reason": "Simulated", "message": "nothing runs here"}
        status = {"capacity": allocatable, "allocatable": allocatable, "conditions": [ready]}
        self.plane.admin.patch(f"{NODES}/{name}/status", {"status": status})

    def report(self, name: str, machine: str) -> None:
        """Let the agent of a new node say what machine it is on."""
        annotations = agent_annotations(SimulatedNode(name, machine).topology)
        self.plane.admin.patch(f"{NODES}/{name}", {"metadata": {"annotations": annotations}})

    def _karpenter(self, types: Sequence[Json]) -> Component:
        folder = _found()
        kubectl(self.plane, "apply", "--server-side", "-f", folder / "crds")
        kubectl(self.plane, "wait", "--for=condition=Established", "crd", "--all")
        file, health = self.plane.state / "instance-types.json", free_port()
        file.write_text(json.dumps(types))
        command: list[str | Path] = [
            "env",
            f"KUBECONFIG={self.plane.kubeconfig()}",
            "SYSTEM_NAMESPACE=kube-system",
            folder / "karpenter",
            "--disable-leader-election=true",
            f"--metrics-port={free_port()}",
            f"--health-probe-port={health}",
            f"--instance-types-file-path={file}",
            "--batch-idle-duration=1s",
        ]
        return Component("karpenter", command, self.plane.state, f"http://127.0.0.1:{health}/readyz")


DECLARED: Mapping[str, Any] = {"nodeGroups": {"expected": {"h100.8": {"machine": "hgx-h100"}}}}
"""A group of which there is no node."""


@contextmanager
def provisioning(binaries: Path, types: Sequence[Json]) -> Iterator[Provisioning]:
    """Start all of it; skip where Karpenter or Helm cannot be built."""
    with ControlPlane(binaries, users=USERS) as plane:
        lent = Provisioning(plane, types)
        plane.start_controllers(",".join(CONTROLLERS))
        with lent.karpenter.running():
            for document, path in (
                (CLASS, "karpenter.kwok.sh/v1alpha1/kwoknodeclasses"),
                (POOL, "karpenter.sh/v1/nodepools"),
            ):
                plane.admin.post(f"/apis/{path}", document)
            yield lent


@cache
def _added_by_the_chart() -> str:
    given = ("image.repository=gputopo", "extender.autoscaling.enabled=true")
    words = [word for setting in given for word in ("--set", setting)]
    only = ("--show-only", "templates/extender/autoscaling.yaml")
    try:
        text = helm("template", "gputopo", CHART, "--namespace", NAMESPACE, *words, *only)
    except HelmUnavailable as reason:
        pytest.skip(str(reason))
    documents = sorted(yaml.safe_load_all(text), key=lambda found: str(found["kind"] != "Namespace"))
    return yaml.safe_dump_all(documents)


def _found() -> Path:
    try:
        return program.find_or_build()
    except BinariesUnavailable as reason:
        pytest.skip(str(reason))
