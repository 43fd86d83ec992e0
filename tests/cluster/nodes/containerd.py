"""Real containers on a node: containerd and runc, with images that nobody has to pull."""

import json
import os
import subprocess
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.cluster.component import Component
from tests.cluster.nodes.cgroups import cgroup_of
from tests.cluster.nodes.cni import Cni, no_network
from tests.cluster.nodes.images import EXAMPLES, IMAGE, PAUSE, write_archive
from tests.cluster.nodes.namespaces import Namespaces, NodeProcess
from tests.cluster.nodes.network import Network
from tests.cluster.nodes.runtime import ContainerRuntime, Runtime
from tests.cluster.polling import eventually

_ROOT = "/var/lib/containerd"
_CONFIGURATION = """
version = 4
root = '{root}'
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
  bin_dirs = {programs}
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


def containerd(
    containerd_programs: Path, runc_programs: Path, network: Network | None = None, images: Sequence[Path] = ()
) -> Runtime:
    """Return what gives a node this runtime, from the folders of its programs.

    Args:
        containerd_programs: `containerd`, `ctr` and the shim.
        runc_programs: `runc`.
        network: of the pods; without one each is alone.
        images: archives of further images.

    """
    positions = count()

    def of_node(node: str, inside: Namespaces, state: Path, tools: Path) -> ContainerRuntime:
        cni = network.cni(next(positions)) if network else None
        return Containerd(node, inside, state, tools, containerd_programs, runc_programs / "runc", cni, images)

    return of_node


class Containerd(ContainerRuntime):
    """One node's containerd."""

    def __init__(
        self,
        node: str,
        inside: Namespaces,
        state: Path,
        tools: Path,
        programs: Path,
        runc: Path,
        cni: Cni | None,
        images: Sequence[Path],
    ) -> None:
        self._state, self._images = state / "containerd", images
        self._unpacked = state.parent.with_name("images")
        """What the first node with further images has made of them, and the others copy."""
        self._state.mkdir()
        conflists = self._state / "cni"
        conflists.mkdir()
        network = cni or no_network(conflists)
        (conflists / "pods.conflist").write_text(json.dumps(network.conflist))
        self.socket = str(self._state / "cri.sock")
        self._inside, self._tools, self._programs = inside, tools, programs
        configuration = self._state / "config.toml"
        configuration.write_text(
            _CONFIGURATION.format(
                root=_ROOT,
                socket=self.socket,
                pause=PAUSE,
                cni=conflists,
                programs=[str(folder) for folder in network.programs],
                shim=programs / "containerd-shim-runc-v2",
                runc=tools / "unconfined",
            )
        )
        environment = {"PATH": f"{runc.parent}:{os.environ['PATH']}", "RUNC": str(runc), "CGROUP": cgroup_of(node)}
        environment["DRIVER"] = str(state / "driver")
        self._process = NodeProcess(
            "containerd", inside, state, [programs / "containerd", "--config", configuration], environment
        )

    def start(self) -> None:
        """Start it, and return when it serves and has the images."""
        if self._unpacked.exists():
            self._run_inside("cp", "--archive", self._unpacked, _ROOT)
            self._serve()
            return
        self._serve()
        for names, entrypoint in (((IMAGE, EXAMPLES), "/inside"), ((PAUSE,), "/pause")):
            archive = self._state / "image.tar"
            write_archive(archive, names, self._tools / "inside", entrypoint)
            self._import(archive)
        for archive in self._images:
            self._import(archive)
        if self._images:
            self._process.stop()
            self._run_inside("cp", "--archive", _ROOT, self._unpacked)
            self._serve()

    @property
    def components(self) -> Sequence[Component]:
        """Its process."""
        return [self._process]

    def _serve(self) -> None:
        self._process.start()
        eventually(self.is_listening)

    def _import(self, archive: Path) -> None:
        ctr = self._programs / "ctr"
        self._run_inside(ctr, "--address", self.socket, "--namespace", "k8s.io", "images", "import", archive)

    def _run_inside(self, *command: str | Path) -> None:
        """Run a command with the node's mounts, where containerd looks for its own."""
        enter = ["nsenter", f"--mount=/proc/{self._inside.pid}/ns/mnt", "--", *command]
        ended = subprocess.run(enter, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
