"""A killed test run leaves nothing of its nodes: no process, no mount, no file."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.go_build import GoBuild
from tests.cluster.nodes import programs
from tests.cluster.nodes.node import Parts
from tests.cluster.polling import eventually

ROOT = Path(__file__).parents[3]

RUN = """
import sys
from pathlib import Path
from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes.containerd import containerd
from tests.cluster.nodes.node import FLAGS, GpuNode, Parts, users
from tests.cluster.nodes.plugins import wilful
from tests.cluster.nodes.pods import bound_pod, is_running, submit
from tests.cluster.polling import eventually
from tests.nvml.library import FakeNvml

kubernetes, tools, folder, *real = map(Path, sys.argv[1:])
runtime = containerd(*real) if real else None
with ControlPlane(kubernetes, users=users(["n0"]), flags=FLAGS) as plane:
    with GpuNode(plane, "n0", "hgx_h100", Parts(kubernetes, tools, FakeNvml(folder)), runtime) as node:
        wilful(node)
        submit(node, bound_pod(node, "two", 2))
        eventually(lambda: is_running(node, "two"), within_seconds=60)
        print(plane.state, node.inside.pid, flush=True)
        sys.stdin.read()
"""


@pytest.mark.parametrize("sets", [(), (programs.CONTAINERD, programs.RUNC)], ids=["fake", "real"])
def test_sigkill_leaves_nothing_behind(
    parts: Parts, tmp_path: Path, built: Callable[[GoBuild], Path], sets: tuple[GoBuild, ...]
) -> None:
    """The kernel ends the node with the process that held it, be its containers real or not."""
    folders = map(str, [parts.kubernetes, parts.tools, tmp_path, *map(built, sets)])
    command = [sys.executable, "-c", RUN, *folders]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        state, first_process = run.stdout.readline().split()
        assert len(processes_with(state)) >= 6, "a node, its plugin and a control plane run"
        run.send_signal(signal.SIGKILL)
    eventually(lambda: not processes_with(state), within_seconds=30)
    eventually(lambda: not Path("/proc", first_process).exists())  # and with it the node's mounts
    eventually(lambda: not Path(state).exists())
    assert state not in Path("/proc/self/mountinfo").read_text()


def processes_with(state: str) -> list[str]:
    """Return the command lines that name a folder."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if state in line:
                lines.append(line)
    return lines
