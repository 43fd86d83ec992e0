"""`kubectl gputopo` through the real kubectl and the real API server."""

import os
import subprocess
import sysconfig

from tests.cluster.control_plane import ADMIN, ControlPlane
from tests.cluster.objects import NODES, PODS, node, pod
from topology.annotations import keys

ON_NODES = (keys.TOPOLOGY, keys.TOPOLOGY_DIGEST, keys.STATUS, keys.OBSERVED, keys.LEDGER, keys.LOOK)
ON_PODS = (keys.PLACEMENT, keys.FENCE)


def kubectl(cluster: ControlPlane, *arguments: str, user: str = ADMIN) -> subprocess.CompletedProcess[str]:
    """Type it as a user does, with the plugin on the PATH."""
    path = os.pathsep.join([str(cluster.binaries), sysconfig.get_path("scripts"), os.environ["PATH"]])
    kubeconfig = cluster.kubeconfig(user)
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig)}
    return subprocess.run(["kubectl", *arguments], env=environment, capture_output=True, text=True, check=False)


def test_cleanup_takes_all_that_is_ours_and_nothing_else(cluster: ControlPlane) -> None:
    """Whoever may not list hears so; the first look changes nothing, and the last one finds nothing."""
    mine = {keys.REQUIRED_AFFINITY: "nvlink"}
    cluster.admin.post(NODES, node("n1", 8, mine | dict.fromkeys(ON_NODES, "x")))
    said = {"type": keys.GPUS_HEALTHY, "status": "False", "reason": "GPUsSick", "message": "GPU 0"}
    cluster.admin.patch(f"{NODES}/n1/status", {"status": {"conditions": [said]}}, "strategic")
    cluster.admin.post(PODS, pod("train", 1, mine | dict.fromkeys(ON_PODS, "x"), nodeName="n1"))
    verb = ("gputopo", "cleanup")
    refused = kubectl(cluster, *verb, "--yes", user="nobody")
    shown, removed, again = kubectl(cluster, *verb), kubectl(cluster, *verb, "--yes"), kubectl(cluster, *verb)
    assert (refused.returncode, shown.returncode, removed.returncode, again.returncode) == (2, 1, 0, 0)
    assert all(key in shown.stdout for key in (*ON_NODES, *ON_PODS, keys.GPUS_HEALTHY))
    left = [cluster.admin.get(f"{NODES}/n1"), cluster.admin.get(f"{PODS}/train")]
    assert [item["metadata"]["annotations"] for item in left] == [mine, mine]
    assert [each["type"] for each in left[0]["status"]["conditions"]] == ["Ready"]


def test_the_tab_key_completes_verbs_and_names(cluster: ControlPlane) -> None:
    """Kubectl calls `kubectl_complete-gputopo`, and hands on what it says."""
    cluster.admin.post(PODS, pod("train", 1))
    verbs = kubectl(cluster, "__complete", "gputopo", "wh").stdout.splitlines()
    assert [line.split("\t")[0] for line in verbs] == ["what-if", "why", ":4"]
    assert kubectl(cluster, "__complete", "gputopo", "why", "tr").stdout.split() == ["train", ":4"]
