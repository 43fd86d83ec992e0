"""The playground on real nodes: real kubelets and containers, and our agent as device plugin; only the GPUs are pretended.

`kubectl logs` and `exec` work, so kubelets listen where the API server finds them; they answer nobody but it.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.installation import USERS
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import DEADLINE, allow_agent_pods, enforcing
from tests.cluster.nodes.containerd import containerd
from tests.cluster.nodes.namespaces import why_not
from tests.cluster.nodes.node import FLAGS, Parts, users
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.playground import installed
from tests.nvml.library import FakeNvml

MACHINES = {"h100": "hgx_h100", "v100": "dgx1v", "l40s": "pcie_l40s"}


class NodesUnavailable(Exception):
    """No real node can run here; the text says why in one line."""


@contextmanager
def real(kubernetes: Path) -> Iterator[GpuCluster]:
    """Run the playground on real nodes for the length of a `with` block."""
    if reason := why_not():
        raise NodesUnavailable(reason)
    tools, runtime, runc = (each.find_or_build(print) for each in (programs.TOOLS, programs.CONTAINERD, programs.RUNC))
    with TemporaryDirectory(prefix="gputopo-playground-") as name:
        folder = Path(name)
        subprocess.run([tools / "certify", folder], check=True)
        known = {**USERS, **users([*MACHINES])}
        with ControlPlane(kubernetes, users=known, flags=_flags(folder)) as plane, installed(plane) as cluster:
            allow_agent_pods(plane)
            nodes = Nodes(plane, Parts(kubernetes, tools, FakeNvml(folder)))
            try:
                for node in nodes.start(MACHINES, containerd(runtime, runc), _settings(folder)):
                    enforcing(node, DEADLINE)
                yield cluster
            finally:
                nodes.stop()


def _flags(folder: Path) -> dict[str, object]:
    return {
        **FLAGS,
        "kubelet-client-certificate": folder / "client.crt",
        "kubelet-client-key": folder / "client.key",
        "kubelet-preferred-address-types": "InternalIP",
    }


def _settings(folder: Path) -> dict[str, Any]:
    return {
        "address": "0.0.0.0",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(folder / "ca.crt")},
        },
    }
