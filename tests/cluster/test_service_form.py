"""The extender behind a Service: the real kube-scheduler calls it over mutual TLS, and each has an account of its own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from benchmarks.processes.process import free_port
from benchmarks.simulated.fleet import SimulatedNode, node_object
from tests.cluster.api import ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import SCHEDULER_POD, in_its_container
from tests.cluster.gpu_cluster import wants
from tests.cluster.installation import install_chart
from tests.cluster.objects import NODES, PODS
from tests.cluster.polling import eventually
from tests.manifests.rendered import NAMESPACE
from tests.security.certificates import Authority
from topology.annotations import keys

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")

SETTINGS = (
    "extender.service.enabled=true",
    "extender.service.serverSecret=server",
    "extender.service.clientSecret=client",
)
MOUNTED = "/etc/gputopo-tls/"
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{SCHEDULER_POD}"


@pytest.fixture(scope="module")
def installed(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane and install the Service form into it."""
    with ControlPlane(binaries) as own:
        install_chart(own, *SETTINGS)
        own.admin.post(NODES, node_object(SimulatedNode("h100", "hgx-h100")))
        yield own


@contextmanager
def extender(own: ControlPlane, certificates: Path) -> Iterator[str]:
    """Run the extender's container as its account, with what its secret holds; give its address."""
    port, kubeconfig = free_port(), own.service_account_kubeconfig(NAMESPACE, "gputopo-extender")
    text = own.admin.get(CONFIG_MAP)["data"]["extender.yaml"].replace(MOUNTED, f"{certificates}/")
    settings = {"listen.host": "127.0.0.1", "listen.port": port, "kubernetes.kubeconfig": kubeconfig}
    with in_its_container(own.state, text, settings).running():
        yield f"127.0.0.1:{port}"


def start_scheduler(own: ControlPlane, certificates: Path, address: str) -> None:
    """Run kube-scheduler's container as its account, with what its secret holds."""
    text = own.admin.get(CONFIG_MAP)["data"]["scheduler.yaml"].replace(MOUNTED, f"{certificates}/")
    settings = yaml.safe_load(text.replace(f"gputopo-extender.{NAMESPACE}.svc:8888", address))
    kubeconfig = own.service_account_kubeconfig(NAMESPACE, SCHEDULER_POD)
    own.start_scheduler({**settings, "leaderElection": {"leaderElect": False}}, kubeconfig)


def secret(folder: Path, name: str, issuer: Authority, others: Authority, usage: str) -> Path:
    """Write the files of a secret: a certificate by one authority, and the other authority."""
    folder = folder / f"{name}-secret"
    folder.mkdir()
    made = issuer.sign(name, f"/CN={name}", usage)
    for source, target in ((made.certificate, "tls.crt"), (made.key, "tls.key"), (others.certificate, "ca.crt")):
        shutil.copy(source, folder / target)
    return folder


def test_sec1_scheduler_places_pods_over_mutual_tls(installed: ControlPlane, tmp_path: Path) -> None:
    """What the chart configures on both sides fits, and each account's own rights suffice."""
    servers, callers = Authority(tmp_path, "servers"), Authority(tmp_path, "callers")
    with extender(installed, secret(tmp_path, "server", servers, callers, "serverAuth")) as address:
        start_scheduler(installed, secret(tmp_path, "client", callers, servers, "clientAuth"), address)
        installed.admin.post(PODS, wants("ring", 4, "required-affinity: nvlink"))
        eventually(lambda: keys.PLACEMENT in installed.admin.get(f"{PODS}/ring")["metadata"]["annotations"])
        installed.stop_schedulers()


def test_sec1_scheduler_refuses_an_extender_of_another_ca(installed: ControlPlane, tmp_path: Path) -> None:
    """`caFile` is checked: whoever answers at that address with a certificate of somebody else's is not asked."""
    servers, callers, foreign = (Authority(tmp_path, name) for name in ("servers", "callers", "foreign"))
    with extender(installed, secret(tmp_path, "server", foreign, callers, "serverAuth")) as address:
        start_scheduler(installed, secret(tmp_path, "client", callers, servers, "clientAuth"), address)
        installed.admin.post(PODS, wants("wary", 4))
        eventually(lambda: "certificate signed by unknown authority" in why_pending(installed, "wary"))
        installed.stop_schedulers()


def why_pending(own: ControlPlane, name: str) -> str:
    """Return what the scheduler has said about a pod."""
    selector = f"reason=FailedScheduling,involvedObject.name={name}"
    events = own.admin.list("/api/v1/namespaces/default/events", fieldSelector=selector)
    return " ".join(event["message"] for event in events)


def test_extender_reads_disruption_budgets_and_changes_none(installed: ControlPlane) -> None:
    """By a right of its own; beside kube-scheduler it is kube-scheduler's."""
    budgets = "/apis/policy/v1/poddisruptionbudgets"
    with installed.service_account(NAMESPACE, "gputopo-extender") as api:
        assert {each["metadata"]["name"] for each in api.list(budgets)} == {"gputopo-extender", SCHEDULER_POD}
        with pytest.raises(ApiError, match="403"):
            api.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"metadata": {"name": "b"}})
