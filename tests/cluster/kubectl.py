"""The real kubectl, run as the user that may do everything."""

import subprocess
from pathlib import Path

from tests.cluster.control_plane import ControlPlane


def kubectl(plane: ControlPlane, *arguments: str | Path, given: str | None = None) -> str:
    """Run kubectl, with `given` as its standard input, and return what it printed; it must end well."""
    command = [plane.binaries / "kubectl", "--kubeconfig", plane.kubeconfig(), *arguments]
    ended = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
