"""A container of the image as the chart's pods are: root file system read-only, no capability, no new privileges; run by runc."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes.process import Process, running

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Runc:
    """Runs containers of one image, one at a time; they share this machine's network."""

    program: Path
    folder: Path
    files: Path
    """The image's, unpacked."""
    config: Mapping[str, Any]
    """The image's."""

    def output(self, *command: str) -> str:
        """Run a command to its end as the image's user, and return what it printed on both streams."""
        done = subprocess.run(
            self._prepare(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    @asynccontextmanager
    async def serving(
        self,
        command: Sequence[str],
        ready_url: str,
        *,
        user: str | None = None,
        binds: Mapping[Path, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Process]:
        """Run a command for as long as the context is open, which opens when `ready_url` answers; the process is its own."""
        prepared = self._prepare(command, user, binds or {}, env or {})
        async with running("container", prepared, self.folder, ready_url) as runc:
            yield Process(int((self.folder / "pid").read_text()), runc.log)

    def _prepare(
        self,
        command: Sequence[str],
        user: str | None = None,
        binds: Mapping[Path, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[str | Path]:
        uid, gid = (user or self.config["User"]).split(":")
        process = {
            "user": {"uid": int(uid), "gid": int(gid)},
            "args": [*command],
            "env": [*self.config["Env"], *(f"{name}={value}" for name, value in (env or {}).items())],
            "cwd": "/",
            "noNewPrivileges": True,
        }
        mounts = [_mount("/proc", "proc", "proc"), _mount("/dev", "tmpfs", "tmpfs")]
        mounts += [_mount(inside, "bind", str(outside), "rbind", "rw") for outside, inside in (binds or {}).items()]
        document = {
            "ociVersion": "1.0.2",
            "process": process,
            "root": {"path": str(self.files), "readonly": True},
            "mounts": mounts,
            "linux": {"namespaces": [{"type": kind} for kind in ("mount", "pid", "ipc")]},
        }
        (self.folder / "config.json").write_text(json.dumps(document))
        where: list[str | Path] = ["--bundle", self.folder, "--pid-file", self.folder / "pid"]
        return [self.program, "--root", self.folder / "runc", "run", *where, f"gputopo-{os.getpid()}"]


def _mount(destination: str, kind: str, source: str, *options: str) -> Json:
    return {"destination": destination, "type": kind, "source": source, "options": [*options]}
