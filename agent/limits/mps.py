"""MPS, NVIDIA's way to let several processes compute on one GPU: where its daemons are, and what a container is told of them.

A daemon holds each client process to its limit, and a process that does not ask for MPS to none.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.limits.share import Share

_PIPE, _SHM = "/run/mps/pipe", "/dev/shm"  # noqa: S108 - where a client looks for it
"""Of a container."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host in a container."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True)
class MpsDaemons:
    """The daemons below one folder of the host.

    One serves a GPU (`<uuid>/pipe`), a resource, as NVIDIA's device plugin has it (`nvidia.com/gpu/pipe`), or the node (`pipe`).
    They share a folder `shm`.
    """

    folder: Path
    resource: str

    def look(self, gpus: Collection[str]) -> dict[str, Path]:
        """Return GPU → the folder of the daemon that answers for it."""
        shared = [self.folder / self.resource / "pipe", self.folder / "pipe"]
        pipes = {gpu: next(filter(_answers, [self.folder / gpu / "pipe", *shared]), None) for gpu in gpus}
        return {gpu: pipe for gpu, pipe in pipes.items() if pipe}

    def mounts(self, pipe: Path) -> tuple[Mount, ...]:
        """Return what a client of this daemon needs of the host."""
        return Mount(str(pipe), _PIPE), Mount(str(self.folder / "shm"), _SHM)


def environment(share: Share) -> Mapping[str, str]:
    """Return what makes a container's processes clients, and holds each of them to its share; the GPU is the only one it sees."""
    percent = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(share.compute_percent)} if share.compute_percent else {}
    return {
        "CUDA_MPS_PIPE_DIRECTORY": _PIPE,
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={share.memory_gib}G",
        **percent,
    }


def _answers(pipe: Path) -> bool:
    """Whether a process has the daemon's socket open; it is told of nothing, since ours is of another type."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        try:
            ours.connect(str(pipe / "control"))
        except OSError as error:
            return error.errno == errno.EPROTOTYPE
    return True
