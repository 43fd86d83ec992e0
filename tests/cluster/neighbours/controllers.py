"""Kueue, JobSet and LeaderWorkerSet at work beside a control plane, each as its own manifests have it.

Only what a pod has and a process has not is replaced: ports on loopback, the folder of the certificates, and the address of
webhooks, which the API server would ask by a Service. They run as the user that may do everything.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from benchmarks.processes.process import free_port
from tests.cluster.api import ApiError, Json
from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubectl import kubectl
from tests.cluster.neighbours.programs import JOBSET, KUEUE, LWS
from tests.cluster.polling import eventually
from tests.security.certificates import openssl

JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
LEADER_WORKER_SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"
NAMESPACES = {KUEUE: "kueue-system", JOBSET: "jobset-system", LWS: "lws-system"}
_API = {KUEUE: "config.kueue.x-k8s.io/v1beta1"} | {name: f"config.{name}.x-k8s.io/v1alpha1" for name in (JOBSET, LWS)}
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_LEFT_OUT = ("Deployment", "APIService")
_SETTINGS: dict[str, Json] = {
    KUEUE: {"integrations": {"frameworks": ["batch/job", "pod"]}, "featureGates": {"VisibilityOnDemand": False}},
    JOBSET: {"internalCertManagement": {"enable": False}},
    LWS: {"internalCertManagement": {"enable": False}},
}
_FILES = ("ca.crt", "ca.key", "tls.crt", "tls.key")
_GOOD_FOR_DAYS = 400
"""Kueue makes certificates of its own in the place of those that end within ninety days."""


class Controller(Component):
    """One of them, installed and ready to be started."""

    def __init__(self, name: str, programs: Path, plane: ControlPlane) -> None:
        self.program, self._plane = name, plane
        folder = plane.state / name
        folder.mkdir()
        self._webhooks_port, probes_port = free_port(), free_port()
        service = f"{name}-webhook-service.{NAMESPACES[name]}.svc"
        certify(folder, f"{name}-ca", service)
        self._secret = {file: base64.b64encode((folder / file).read_bytes()).decode() for file in _FILES}
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
        command: list[str | Path] = ["env", f"KUBECONFIG={plane.kubeconfig()}", programs / name, f"--config={file}"]
        self._install(programs / f"{name}-config" / "default", folder)
        super().__init__(name, command, plane.state, f"http://127.0.0.1:{probes_port}/readyz")

    def _install(self, manifests: Path, folder: Path) -> None:
        objects = [self._adapted(each) for each in yaml.safe_load_all(kubectl(self._plane, "kustomize", manifests))]
        kept = [each for each in objects if each["kind"] not in _LEFT_OUT]
        kubectl(self._plane, "apply", "--server-side", "-f", "-", given=json.dumps(_list_of(kept, "CustomResource")))
        kubectl(self._plane, "apply", "--server-side", "-f", "-", given=json.dumps(_list_of(kept)))

    def _adapted(self, given: Json) -> Json:
        if given["kind"] in _WEBHOOKS:
            reach_on_loopback(given, self._webhooks_port, self._secret["ca.crt"])
        if given["kind"] == "Secret":
            given["data"] = self._secret
        return given


def reach_on_loopback(configuration: Json, port: int, authority: str) -> None:
    """Have the API server ask a configuration's webhooks at a port of this machine, by a certificate of `authority` (base64)."""
    for webhook in configuration["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}


def certify(folder: Path, authority: str, service: str) -> None:
    """Write what Kueue would make for itself and accepts as its own, but good for 127.0.0.1 too."""
    ca_crt, ca_key, crt, key = (folder / file for file in _FILES)
    days = ("-days", str(_GOOD_FOR_DAYS))
    openssl("genrsa", "-traditional", "-out", ca_key, "2048")
    named = ("-subj", f"/CN={authority}", "-addext", f"subjectAltName=DNS:{authority}")
    openssl("req", "-x509", "-key", ca_key, *named, *days, "-out", ca_crt)
    serves = ("-addext", f"subjectAltName=IP:127.0.0.1,DNS:{service}", "-addext", "extendedKeyUsage=serverAuth")
    signed = ("-CA", ca_crt, "-CAkey", ca_key, "-subj", f"/CN={service}", *serves, *days)
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, *signed, "-out", crt)


def _list_of(objects: list[Json], kind: str = "") -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": [each for each in objects if kind in each["kind"]]}


@contextmanager
def at_work(programs: Path, plane: ControlPlane) -> Iterator[dict[str, Controller]]:
    """Have all three at work for the length of a `with` block, and Kubernetes' own controllers of Jobs and StatefulSets."""
    plane.start_controllers("job-controller,statefulset-controller,garbage-collector-controller")
    with ExitStack() as stack:
        controllers = {name: Controller(name, programs, plane) for name in (JOBSET, LWS, KUEUE)}
        for controller in controllers.values():
            stack.callback(controller.stop)
            controller.start()
        for controller in controllers.values():
            controller.wait_ready()
        yield controllers


def create(plane: ControlPlane, collection: str, body: Json) -> Json:
    """Create an object as soon as its webhooks listen, which is after their controller says that it is ready."""

    def created() -> Json | None:
        try:
            return plane.admin.post(collection, body)
        except ApiError as error:
            if "failed calling webhook" not in str(error):
                raise
        return None

    made = eventually(created, 60)
    assert made is not None
    return made
