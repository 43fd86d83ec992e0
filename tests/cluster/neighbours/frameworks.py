"""The controllers of PyTorchJob, TrainJob, RayJob and MPIJob on a control plane: one program, `frameworks/main.go`.

As with the others, webhooks are asked on loopback, and it runs as the user that may do everything.
"""

import base64
import json
from functools import partial
from pathlib import Path

from benchmarks.processes.process import free_port
from tests.cluster.api import Json
from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.neighbours.controllers import certify, reach_on_loopback
from tests.cluster.neighbours.programs import FRAMEWORKS
from tests.cluster.polling import eventually

PYTORCHJOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
MPIJOBS = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
TRAINING_RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainingruntimes"
RAYJOBS = "/apis/ray.io/v1/namespaces/default/rayjobs"
RAYCLUSTERS = "/apis/ray.io/v1/namespaces/default/rayclusters"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Frameworks(Component):
    """Their program, with its definitions and webhooks installed and ready to be started."""

    def __init__(self, programs: Path, plane: ControlPlane) -> None:
        folder = plane.state / FRAMEWORKS
        folder.mkdir()
        certify(folder, f"{FRAMEWORKS}-ca", f"{FRAMEWORKS}.default.svc")
        probes_port, self._webhooks_port = free_port(), free_port()
        self._authority = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
        self._install(json.loads((programs / f"{FRAMEWORKS}.json").read_text()), plane)
        ports = [str(probes_port), str(self._webhooks_port)]
        command: list[str | Path] = ["env", f"KUBECONFIG={plane.kubeconfig()}", programs / FRAMEWORKS, *ports, folder]
        super().__init__(FRAMEWORKS, command, plane.state, f"http://127.0.0.1:{probes_port}/readyz")

    def _install(self, objects: list[Json], plane: ControlPlane) -> None:
        for number, item in enumerate(objects):
            if item["kind"] == "CustomResourceDefinition":
                plane.admin.post(_DEFINITIONS, item)
            else:
                reach_on_loopback(item, self._webhooks_port, self._authority)
                item["metadata"]["name"] = f"{FRAMEWORKS}-{number}"  # as delivered, all of them are called the same
                plane.admin.post(_WEBHOOKS, item)
        for item in objects:
            if item["kind"] == "CustomResourceDefinition":
                eventually(partial(_is_established, plane, item["metadata"]["name"]))


def _is_established(plane: ControlPlane, definition: str) -> bool:
    """Whether the API server takes objects of a definition."""
    status = plane.admin.get(f"{_DEFINITIONS}/{definition}").get("status") or {}
    established = {"type": "Established", "status": "True"}
    return any(established.items() <= condition.items() for condition in status.get("conditions") or ())
