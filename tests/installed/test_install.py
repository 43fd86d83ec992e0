"""`helm install`, and the first pod: with real kubelets, every program in a container of its own, and only the GPUs pretended."""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.cluster.nodes.inside import seen_inside
from tests.cluster.nodes.plugins import wilful
from tests.cluster.polling import eventually
from tests.installed.cluster import Cluster
from tests.installed.load import PATIENCE_SECONDS, comings_and_goings
from tests.installed.release import Release
from tests.manifests.helm import MANIFESTS
from tests.manifests.rendered import NAMESPACE
from tests.security.certificates import Authority
from topology.annotations import keys
from topology.annotations.records import decode_observed, decode_placement

pytestmark = pytest.mark.waits

EXAMPLE = MANIFESTS / "examples" / "required-nvlink.yaml"
Install = Callable[..., Release]


def planned(pod: dict[str, Any]) -> set[str]:
    """Return the GPUs that a pod's placement names for its container."""
    placement = decode_placement(pod["metadata"]["annotations"][keys.PLACEMENT])
    return set(placement.containers["main"])


def processes(pod: dict[str, Any]) -> list[str]:
    """Return the IDs of a pod's containers: a container that was started anew has another."""
    return [each["containerID"] for each in pod["status"]["containerStatuses"]]


def test_from_nothing_to_a_pod_on_nvlinks(cluster: Cluster, installed: Install, figure: Callable[[str], None]) -> None:
    """In mode enforce the process finds the four GPUs of the plan, and an NVLink between each two of them."""
    began = time.monotonic()
    release = installed(agent__mode="enforce")
    ready = time.monotonic()
    cluster.kubectl("apply", "-f", EXAMPLE)
    pod = cluster.wait_running("required-nvlink")
    runs = time.monotonic()
    seen = seen_inside(cluster.node_of(pod), "required-nvlink")
    assert set(seen.env["NVIDIA_VISIBLE_DEVICES"].split(",")) == planned(pod)
    links = re.findall(r"^GPU\d and GPU\d: (\w+)$", cluster.kubectl("logs", "required-nvlink"), re.MULTILINE)
    assert len(links) == 6
    assert all(link.startswith("NV") for link in links)
    release.check()
    told = json.loads(cluster.kubectl("gputopo", "top", "--output=json"))
    assert told["unheard"] == {}, "the metrics of all agents came through the API server"
    assert len([gpu for gpu in told["gpus"] if gpu["pod"] == "default/required-nvlink"]) == 4
    pods = cluster.run_kubectl("gputopo", "pods", "--extender=auto", "--output=json")
    assert pods.stderr == "", "an extender was asked, and nothing was estimated"
    listed = json.loads(pods.stdout)
    assert [(item["name"], item["node"]) for item in listed["pods"]] == [("required-nvlink", cluster.node_of(pod).name)]
    figure(
        f"helm install: all pods Ready after {ready - began:.0f} s, the first pod runs after {runs - ready:.1f} s more"
    )


def test_upgrade_and_rollback_under_load(cluster: Cluster, installed: Install, figure: Callable[[str], None]) -> None:
    """Every program of ours is replaced twice; who runs keeps process and GPUs, who comes meanwhile gets GPUs of nobody else."""
    release = installed(agent__mode="enforce")
    cluster.kubectl("apply", "-f", EXAMPLE)
    before = cluster.wait_running("required-nvlink")
    with comings_and_goings(cluster) as seen:
        eventually(lambda: len(seen.waited) >= 3, 3 * PATIENCE_SECONDS)
        release.upgrade(scheduler__logVerbosity=3, agent__config__discovery__interval="7s")
        upgraded = len(seen.waited)
        eventually(lambda: len(seen.waited) >= upgraded + 3, 3 * PATIENCE_SECONDS)
        release.roll_back()
        rolled_back = len(seen.waited)
        eventually(lambda: len(seen.waited) >= rolled_back + 3, 3 * PATIENCE_SECONDS)
    after = cluster.wait_running("required-nvlink")
    figure(
        f"upgrade and rollback under load: {len(seen.waited)} pods ran, the longest after {max(seen.waited):.1f} s, "
        f"half of them within {median(seen.waited):.1f} s; {len(seen.turned_away)} were turned away by a kubelet, "
        f"{len(seen.unplanned)} had other GPUs than planned"
    )
    assert len(seen.turned_away) <= 2, seen.turned_away
    assert seen.gpus_given_twice == set()
    assert not planned(after) & seen.gpus
    assert processes(after) == processes(before)
    assert planned(after) == planned(before)
    assert cluster.node_of(after).held()["required-nvlink", "main"] == planned(after)


def test_nothing_is_left_behind(cluster: Cluster, installed: Install) -> None:
    """After removal and cleanup no node and no pod has an annotation of ours but what its owner wrote; who ran goes on.

    The hook that opens the queue's gates succeeds, or Helm would report an error.
    """
    release = installed(agent__mode="enforce", extender__config__queue__enabled=True)
    cluster.kubectl("apply", "-f", EXAMPLE)
    before = cluster.wait_running("required-nvlink")
    release.uninstall()
    cluster.kubectl("gputopo", "cleanup", "--yes")
    after = cluster.wait_running("required-nvlink")
    assert processes(after) == processes(before)
    assert {key for key in after["metadata"]["annotations"] if "gputopo" in key} == {keys.REQUIRED_AFFINITY}
    assert not [key for node in cluster.nodes for key in node.object()["metadata"]["annotations"] if "gputopo" in key]
    selector = "app.kubernetes.io/instance=gputopo"
    assert cluster.kubectl("get", _KINDS, "--all-namespaces", "--selector", selector, "--output=name") == ""


_KINDS = (
    "all,configmaps,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,validatingadmissionpolicies"
)


@pytest.fixture
def other_plugins(cluster: Cluster) -> Iterator[None]:
    """Run a device plugin on each node that gives GPUs as it likes."""
    plugins = [wilful(node) for node in cluster.nodes]
    yield
    for plugin in plugins:
        plugin.kill()


def test_agent_tells_what_another_plugin_did(cluster: Cluster, other_plugins: None, installed: Install) -> None:
    """In mode observe the node's annotation says which GPUs the kubelet has really given."""
    installed(agent__mode="observe")
    cluster.kubectl("apply", "-f", EXAMPLE)
    node = cluster.node_of(cluster.wait_running("required-nvlink"))
    given = node.held()["required-nvlink", "main"]
    assert len(given) == 4

    def told() -> set[str]:
        observed = decode_observed(node.annotation(keys.OBSERVED) or "")
        return {uuid for uuid, holder in observed.gpus.items() if holder.name == "required-nvlink"}

    eventually(lambda: told() == given)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
def test_extenders_behind_a_service(cluster: Cluster, installed: Install, tmp_path: Path) -> None:
    """kube-scheduler's pods find the extenders' by the name in their certificate, and both know each other by theirs."""
    servers, callers = Authority(tmp_path, "servers"), Authority(tmp_path, "callers")
    host = f"gputopo-extender.{NAMESPACE}.svc"
    certificates = {
        "server": (servers.sign("server", "/CN=server", "serverAuth", host=host), callers),
        "client": (callers.sign("client", "/CN=client", "clientAuth"), servers),
    }
    cluster.make_namespace(NAMESPACE)
    for name, (own, others) in certificates.items():
        files = {"tls.crt": own.certificate, "tls.key": own.key, "ca.crt": others.certificate}
        cluster.make_secret(NAMESPACE, name, files)
    service = {
        f"extender__service__{key}": value for key, value in (("serverSecret", "server"), ("clientSecret", "client"))
    }
    installed(agent__mode="enforce", extender__service__enabled=True, **service)
    cluster.kubectl("apply", "-f", EXAMPLE)
    pod = cluster.wait_running("required-nvlink")
    assert len(planned(pod)) == 4
    containers = cluster.kubectl(
        "get", "pods", f"--namespace={NAMESPACE}", "-o=jsonpath={.items[*].spec.containers[*].name}"
    )
    assert sorted(containers.split()) == [*["agent"] * 3, *["extender"] * 2, *["kube-scheduler"] * 2]
