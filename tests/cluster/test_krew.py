"""`kubectl gputopo` as krew installs it: the real krew, the real kubectl, the real API server, and no virtual environment."""

import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.go_build import BinariesUnavailable, GoBuild
from tests.cluster.objects import NODES, PODS, node, pod
from tests.release import plugin
from topology.annotations import keys
from topology.annotations.codec import digest, encode_topology
from topology.formats import catalog

KREW = GoBuild(
    Path(plugin.__file__).parent / "krew",
    "krew",
    ("sigs.k8s.io/krew/cmd/krew",),
    ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"),
    "krew (once, half a minute)",
    output="kubectl-krew",
)
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
(HERE,) = [each for each in plugin.PLATFORMS if (each.os, each.arch) == ("linux", ARCH)]


@pytest.fixture
def user(cluster: ControlPlane, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Give a kubectl of a user who has krew, a Python of the system, and nothing of ours."""
    try:
        krew = KREW.find_or_build(print)
    except BinariesUnavailable as reason:
        pytest.skip(str(reason))
    environment = {
        "PATH": os.pathsep.join(
            map(str, (krew, cluster.binaries, tmp_path / "krew/bin", "/usr/local/bin:/usr/bin:/bin"))
        ),
        "HOME": str(tmp_path),
        "KREW_ROOT": str(tmp_path / "krew"),
        "KREW_NO_UPGRADE_CHECK": "1",
        "KUBECONFIG": str(cluster.kubeconfig()),
    }

    def kubectl(*words: object) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", *map(str, words)]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return kubectl


def test_krew_installs_a_plugin_that_answers(
    cluster: ControlPlane,
    user: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    """Krew reads the manifest, compares the hash, unpacks and links; then verbs answer, with the exit codes that they have."""
    manifest = plugin.make("9.8.7", tmp_path, [HERE])
    archive = tmp_path / HERE.archive("9.8.7")
    installed = user("krew", "install", f"--manifest={manifest}", f"--archive={archive}")
    assert installed.returncode == 0, installed.stderr
    topology = encode_topology(catalog.machine("hgx-h100"))
    published = {keys.TOPOLOGY: topology, keys.TOPOLOGY_DIGEST: digest(topology)}
    cluster.admin.post(NODES, node("n1", 8, published))
    cluster.admin.post(PODS, pod("train", 4, {keys.REQUIRED_AFFINITY: "nvlink"}))
    nodes = user("gputopo", "nodes", "--no-headers")
    assert nodes.returncode == 0, nodes.stderr
    assert nodes.stdout.split()[0] == "n1"
    why = user("gputopo", "why", "train")
    assert why.returncode == 1, why.stderr
    assert "GPU ledger is missing" in why.stdout
    assert user("gputopo", "node", "n2").returncode == 1
    figure(f"kubectl plugin: an archive has {archive.stat().st_size / 2**20:.0f} MiB")


def test_krew_refuses_an_archive_that_is_not_the_manifests(
    user: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Or the test above would show nothing of hashes."""
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(b"something")
    manifest = tmp_path / "gputopo.yaml"
    manifest.write_text(yaml.safe_dump(plugin.manifest({HERE: archive}, "9.8.7", plugin.URL)))
    archive.write_bytes(b"something else")
    refused = user("krew", "install", f"--manifest={manifest}", f"--archive={archive}")
    assert refused.returncode == 1
    assert "checksum does not match" in refused.stderr
