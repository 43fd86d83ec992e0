"""Kueue, JobSet and LeaderWorkerSet at work beside a control plane, each as its own manifests have it.

Only what a pod has and a process has not is replaced: ports on loopback, the folder of the certificates, and the address of
webhooks, which the API server would ask by a Service. They run as the user that may do everything.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.processes.process import free_port
from tests.cluster.api import Json
from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubectl import kubectl
from tests.cluster.neighbours.programs import JOBSET, KUEUE, LWS
from tests.cluster.polling import eventually
from tests.security.certificates import Authority

_NAMESPACES = {KUEUE: "kueue-system", JOBSET: "jobset-system", LWS: "lws-system"}
_API = {KUEUE: "config.kueue.x-k8s.io/v1beta1"} | {
    name: f"config.{name}.x-k8s.io/v1alpha1" for name in (JOBSET, LWS)
}
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_LEFT_OUT = ("Deployment", "APIService")
_SETTINGS: dict[str, Json] = {
    KUEUE: {"integrations": {"frameworks": ["batch/job", "pod"]}, "featureGates": {"VisibilityOnDemand": False}},
    JOBSET: {"internalCertManagement": {"enable": False}},
    LWS: {"internalCertManagement": {"enable": False}},
}
_GOOD_FOR_DAYS = 400
"""Kueue makes certificates of its own in the place of those that end within ninety days."""


class Controller(Component):
    """One of them, installed and ready to be started."""

    def __init__(self, name: str, programs: Path, plane: ControlPlane) -> None:
        self.program, self._plane = name, plane
        folder = plane.state / name
        folder.mkdir()
        self._webhooks_port, probes_port = free_port(), free_port()
        service = f"{name}-webhook-service.{_NAMESPACES[name]}.svc"
        self._authority = Authority(folder, "ca", _GOOD_FOR_DAYS)
        self._authority.sign("tls", f"/CN={service}", "serverAuth", _GOOD_FOR_DAYS, service)
        configuration = {
            "apiVersion": _API[name],
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{probes_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._webhooks_port, "certDir": str(folder)},
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"qps": 200, "burst": 400},
            **_SETTINGS[name],
        }
        file = folder / "configuration.yaml"
        file.write_text(yaml.safe_dump(configuration))
        command = ["env", f"KUBECONFIG={plane.kubeconfig()}", programs / name, f"--config={file}"]
        self._install(programs / f"{name}-config" / "default", folder)
        super().__init__(name, command, plane.state, f"http://127.0.0.1:{probes_port}/readyz")

    def _install(self, manifests: Path, folder: Path) -> None:
        objects = [self._adapted(each) for each in yaml.safe_load_all(kubectl(self._plane, "kustomize", manifests))]
        kept = [each for each in objects if each["kind"] not in _LEFT_OUT]
        kubectl(self._plane, "apply", "--server-side", "-f", "-", given=json.dumps(_list_of(kept, "CustomResource")))
        kubectl(self._plane, "apply", "--server-side", "-f", "-", given=json.dumps(_list_of(kept)))

    def _adapted(self, given: Json) -> Json:
        authority = base64.b64encode(self._authority.certificate.read_bytes()).decode()
        if given["kind"] in _WEBHOOKS:
            for webhook in given["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                url = f"https://127.0.0.1:{self._webhooks_port}{path}"
                webhook["clientConfig"] = {"url": url, "caBundle": authority}
        if given["kind"] == "Secret":
            files = {f"{name}.{kind}" for name in ("ca", "tls") for kind in ("crt", "key")}
            folder = self._authority.certificate.parent
            given["data"] = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in files}
        return given


def _list_of(objects: list[Json], kind: str = "") -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": [each for each in objects if kind in each["kind"]]}


@contextmanager
def at_work(programs: Path, plane: ControlPlane) -> Iterator[dict[str, Controller]]:
    """Have all three at work for the length of a `with` block, and Kubernetes' own controllers of Jobs and StatefulSets."""
    plane.start_controllers("job-controller", "statefulset-controller", "garbage-collector-controller")
    with ExitStack() as stack:
        controllers = {name: Controller(name, programs, plane) for name in (JOBSET, LWS, KUEUE)}
        for controller in controllers.values():
            stack.callback(controller.stop)
            controller.start()
        for controller in controllers.values():
            controller.wait_ready()
        yield controllers


def asks_for(plane: ControlPlane, collection: str, body: Json) -> Any:
    """Create an object whose webhook may not be listening yet: probes answer before it does."""
    return eventually(lambda: _created(plane, collection, body), 60)


def _created(plane: ControlPlane, collection: str, body: Json) -> Json | None:
    from tests.cluster.api import ApiError

    try:
        return plane.admin.post(collection, body)
    except ApiError as error:
        if error.code != 500:
            raise
        return None
