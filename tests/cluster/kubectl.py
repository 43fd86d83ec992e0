"""The real kubectl, run as the user that may do everything."""

import subprocess
from pathlib import Path

from tests.cluster.control_plane import ControlPlane


def kubectl(plane: ControlPlane, *arguments: str | Path) -> str:
    """Run kubectl and return what it printed; it must end well."""
    command = [plane.binaries / "kubectl", "--kubeconfig", plane.kubeconfig(), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
