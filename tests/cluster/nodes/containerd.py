"""Real containers on a node: containerd and runc, with images made by hand and a network that is only a loopback."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.component import Component
from tests.cluster.nodes.cgroups import cgroup_of
from tests.cluster.nodes.images import EXAMPLES, IMAGE, PAUSE, write_archive
from tests.cluster.nodes.namespaces import Namespaces, NodeProcess
from tests.cluster.nodes.runtime import ContainerRuntime, Runtime
from tests.cluster.polling import eventually

_CONFIGURATION = """
version = 4
root = '/var/lib/containerd'
state = '/run/containerd'
imports = []
disabled_plugins = [
  'io.containerd.nri.v1.nri', 'io.containerd.snapshotter.v1.erofs', 'io.containerd.snapshotter.v1.blockfile',
  'io.containerd.snapshotter.v1.native', 'io.containerd.image-verifier.v1.bindir', 'io.containerd.internal.v1.opt',
]
[plugins.'io.containerd.server.v1.grpc']
  address = '{socket}'
[plugins.'io.containerd.server.v1.ttrpc']
  address = '{socket}.ttrpc'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{pause}'
[plugins.'io.containerd.cri.v1.runtime']
  # A machine may keep CAP_SYS_RESOURCE to itself, and without it no sandbox could protect itself from the OOM killer.
  restrict_oom_score_adj = true
  cdi_spec_dirs = ['/var/run/cdi']
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{cni}']
  conf_dir = '{cni}'
  use_internal_loopback = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  runtime_path = '{shim}'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{runc}'
  Root = '/run/runc'
  SystemdCgroup = false
"""

_NO_NETWORK = {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "gputopo-none"}]}
_NO_NETWORK_PLUGIN = """#!/bin/sh
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
ADD) echo '{"cniVersion": "1.0.0", "interfaces": [], "ips": [{"address": "10.88.0.2/32"}]}' ;;
esac
"""


def containerd(containerd_programs: Path, runc_programs: Path) -> Runtime:
    """Return what gives a node this runtime, from the folders of its programs."""

    def of_node(node: str, inside: Namespaces, state: Path, tools: Path) -> ContainerRuntime:
        return Containerd(node, inside, state, tools, containerd_programs, runc_programs / "runc")

    return of_node


class Containerd(ContainerRuntime):
    """One node's containerd."""

    def __init__(self, node: str, inside: Namespaces, state: Path, tools: Path, programs: Path, runc: Path) -> None:
        self._state = state / "containerd"
        self._state.mkdir()
        self.socket = str(self._state / "cri.sock")
        self._inside, self._tools, self._programs = inside, tools, programs
        configuration = self._state / "config.toml"
        configuration.write_text(
            _CONFIGURATION.format(
                socket=self.socket,
                pause=PAUSE,
                cni=self._write_network(),
                shim=programs / "containerd-shim-runc-v2",
                runc=tools / "unconfined",
            )
        )
        environment = {"PATH": f"{runc.parent}:{os.environ['PATH']}", "RUNC": str(runc), "CGROUP": cgroup_of(node)}
        self._process = NodeProcess(
            "containerd", inside, state, [programs / "containerd", "--config", configuration], environment
        )

    def start(self) -> None:
        """Start it, and return when it serves and has the images."""
        self._process.start()
        eventually(Path(self.socket).exists, within_seconds=60)
        for names, entrypoint in (((IMAGE, EXAMPLES), "/inside"), ((PAUSE,), "/pause")):
            archive = self._state / "image.tar"
            write_archive(archive, names, self._tools / "inside", entrypoint)
            self._ctr("images", "import", archive)

    @property
    def components(self) -> Sequence[Component]:
        """Its process."""
        return [self._process]

    def _ctr(self, *arguments: str | Path) -> None:
        # Its mounts are to be the node's, where containerd looks for them.
        enter = ["nsenter", f"--mount=/proc/{self._inside.pid}/ns/mnt"]
        command = [*enter, self._programs / "ctr", "--address", self.socket, "--namespace", "k8s.io", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr

    def _write_network(self) -> Path:
        """Write a network of which pods see nothing but its address; kubelets insist on one."""
        folder = self._state / "cni"
        folder.mkdir()
        (folder / "none.conflist").write_text(json.dumps(_NO_NETWORK))
        plugin = folder / "gputopo-none"
        plugin.write_text(_NO_NETWORK_PLUGIN)
        plugin.chmod(0o755)
        return folder
