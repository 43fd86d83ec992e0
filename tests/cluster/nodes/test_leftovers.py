"""A killed test run leaves nothing of its nodes: no process, no mount, no file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.cluster.nodes.node import Parts
from tests.cluster.polling import eventually

ROOT = Path(__file__).parents[3]

RUN = """
import sys
from pathlib import Path
from tests.cluster.control_plane import ControlPlane
from tests.cluster.nodes.node import FLAGS, GpuNode, Parts, users
from tests.cluster.nodes.plugins import wilful
from tests.nvml.library import FakeNvml

kubernetes, tools, folder = map(Path, sys.argv[1:])
with ControlPlane(kubernetes, users=users(["n0"]), flags=FLAGS) as plane:
    with GpuNode(plane, "n0", "hgx_h100", Parts(kubernetes, tools, FakeNvml(folder))) as node:
        wilful(node)
        print(plane.state, flush=True)
        sys.stdin.read()
"""


def test_sigkill_leaves_nothing_behind(parts: Parts, tmp_path: Path) -> None:
    """The kernel ends the node with the process that held it."""
    command = [sys.executable, "-c", RUN, str(parts.kubernetes), str(parts.tools), str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        state = run.stdout.readline().strip()
        assert len(processes_with(state)) >= 6, "a node, its plugin and a control plane run"
        run.send_signal(signal.SIGKILL)
    eventually(lambda: not processes_with(state), within_seconds=30)
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
