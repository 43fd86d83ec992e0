"""The namespaces of one node: its own mounts, where a kubelet's fixed paths are its own, and its own processes.

One `unshare` holds them. When its first process ends, the kernel ends all others in it, and with them go the mounts: a single
kill leaves neither kubelet nor shim nor container nor mount behind.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.component import Component
from tests.cluster.polling import eventually

_FRESH = ("/run", "/var/lib", "/var/log")
"""Empty in the node: what kubelet and runtime keep under fixed paths is this node's alone, and in memory."""

_FIRST_PROCESS = """
set -e
read pid rest < /proc/self/stat  # counted as outside, until /proc is the namespace's own
mount -t proc proc /proc
for fresh in {fresh}; do mount -t tmpfs tmpfs $fresh; done
{binds}
echo $pid > {pid_file}.new
mv {pid_file}.new {pid_file}
trap '' CHLD  # so the kernel reaps what is orphaned
exec sleep infinity
"""


def why_not() -> str | None:
    """Return why no node can run here, or `None`."""
    missing = [program for program in ("unshare", "mount") if shutil.which(program) is None]
    if missing:
        return f"a node needs {missing[0]}"
    if os.geteuid() != 0:
        return "a node needs root: it has mounts of its own"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    return f"a node needs namespaces of its own: {tried.stderr.strip()}" if tried.returncode else None


class Namespaces(Component):
    """The namespaces, as a process that can be started and ended like every other.

    Args:
        name: of the log in `state`.
        state: the node's folder.
        binds: folder outside → path inside, each mounted over what is there.
        network: a process in whose network they are; 0: this one's.

    """

    def __init__(self, name: str, state: Path, binds: Mapping[Path, str], network: int = 0) -> None:
        self._pid_file = state / f"{name}.pid"
        mounts = [f"mkdir -p {path} && mount --bind {folder} {path}" for folder, path in binds.items()]
        script = _FIRST_PROCESS.format(fresh=" ".join(_FRESH), binds="\n".join(mounts), pid_file=self._pid_file)
        command = [
            *(["nsenter", f"--net=/proc/{network}/ns/net"] if network else []),
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "slave",
            "sh",
            "-c",
            script,
        ]
        super().__init__(name, command, state, ready_url="")

    def start(self) -> None:
        """Make the namespaces, and return when all is mounted."""
        self._pid_file.unlink(missing_ok=True)
        super().start()
        eventually(lambda: self._pid_file.exists() or not self.is_running, within_seconds=60)
        if not self.is_running:
            raise self._start_failed("ended during its start")

    @property
    def pid(self) -> int:
        """The first process, as it is counted outside."""
        return int(self._pid_file.read_text())

    def stop(self) -> None:
        """End every process in the namespaces; return when none is left."""
        if self._process is not None and self.is_running:
            # `unshare` outlives its child until the kernel has ended all that was in there.
            os.kill(self.pid, signal.SIGKILL)
            self._process.wait()
        self._forget()


class NodeProcess(Component):
    """A program inside a node, with a working folder that is its own and empty.

    Args:
        name: of its log in `state`.
        inside: where it runs; started again, it runs in what is there then.
        command: the program with its arguments.
        environment: variables beside the inherited ones.
        ready_url: answers 200 when it is ready.

    """

    def __init__(
        self,
        name: str,
        inside: Namespaces,
        state: Path,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        ready_url: str = "",
    ) -> None:
        folder = state / f"{name}.cwd"
        folder.mkdir(parents=True, exist_ok=True)
        variables = [f"{key}={value}" for key, value in (environment or {}).items()]
        self._inside = inside
        self._program = ["env", f"--chdir={folder}", *variables, *map(str, command)]
        super().__init__(name, [], state, ready_url)

    def start(self) -> None:
        """Start the program in the namespaces as they are now."""
        self._command = ["--in", str(self._inside.pid), *self._program]
        super().start()
