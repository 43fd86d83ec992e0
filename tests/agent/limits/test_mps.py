"""MPS daemons are found by their sockets, and a container is told of the right one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agent.limits.mps import Mount, MpsDaemons, environment
from tests.agent.limits.node import GPUS, listening, share

RESOURCE = "nvidia.com/gpu"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a path that is short enough for sockets."""
    with TemporaryDirectory() as name:
        yield Path(name)


def test_daemon_of_its_own_comes_before_the_nodes(folder: Path) -> None:
    """Each GPU may have one; else NVIDIA's device plugin has one for the resource, or the node has one."""
    daemons = MpsDaemons(folder, RESOURCE)
    assert daemons.look(GPUS[:2]) == {}
    with listening(folder / "pipe"):
        assert daemons.look(GPUS[:2]) == dict.fromkeys(GPUS[:2], folder / "pipe")
        with listening(folder / RESOURCE / "pipe"), listening(folder / GPUS[0] / "pipe"):
            assert daemons.look(GPUS[:2]) == {
                GPUS[0]: folder / GPUS[0] / "pipe",
                GPUS[1]: folder / RESOURCE / "pipe",
            }


def test_daemon_that_has_died_leaves_a_socket_that_answers_nobody(folder: Path) -> None:
    """So its file alone proves nothing."""
    with listening(folder / "pipe"):
        pass
    assert (folder / "pipe" / "control").exists()
    assert MpsDaemons(folder, RESOURCE).look(GPUS[:1]) == {}


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_daemon_hears_nothing_of_being_looked_at(folder: Path, kind: socket.SocketKind) -> None:
    """No connection comes to it, of whichever type its socket is."""
    with socket.socket(socket.AF_UNIX, kind) as control:
        (folder / "pipe").mkdir()
        control.bind(str(folder / "pipe" / "control"))
        control.listen()
        control.setblocking(False)
        assert MpsDaemons(folder, RESOURCE).look(GPUS[:1])
        with pytest.raises(BlockingIOError):
            control.accept()


def test_container_is_held_by_its_environment(folder: Path) -> None:
    """The GPU is the only one that it sees, so its number there is 0."""
    assert environment(share(10)) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps/pipe",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10G",
    }
    assert environment(replace(share(10), compute_percent=25))["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"


def test_container_gets_its_daemons_pipe_and_the_shared_memory(folder: Path) -> None:
    """From the host, at the places where a client looks."""
    mounts = MpsDaemons(folder, RESOURCE).mounts(folder / GPUS[0] / "pipe")
    assert mounts == (
        Mount(str(folder / GPUS[0] / "pipe"), "/run/mps/pipe"),
        Mount(str(folder / "shm"), "/dev/shm"),
    )
