"""Whether DCGM exporter runs on the node is told by the node's pods and by the port of its address, and asked again in time."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from agent.monitoring.dcgm import ASK_SECONDS, DcgmExporter, answers_as_dcgm
from agent.plugin.pods.listed_pods import ListedPod
from tests.agent.monitoring.test_sampler import Clock

OURS = ListedPod("gputopo-system", "gputopo-agent-x7k2p")


def silent() -> bool:
    return False


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("nvidia-dcgm-exporter-5zv8q", True),
        ("dcgm-exporter-1700000000-8hv2w", True),
        ("monitoring-dcgm-exporter-qwx7d", True),
        ("nvidia-dcgm-9xk4l", False),
        ("node-exporter-dfk2m", False),
    ],
)
def test_a_pod_is_known_by_its_name(name: str, runs: bool) -> None:
    """As the GPU operator, its own chart, and other releases call it; DCGM itself tells Prometheus nothing."""
    assert DcgmExporter(lambda: [OURS, ListedPod("any", name)], silent).runs() is runs


def test_one_that_is_no_pod_is_known_by_its_answer() -> None:
    """A service of the node's own system."""
    assert DcgmExporter(lambda: [OURS], lambda: True).runs()


def test_it_is_asked_again_after_five_minutes() -> None:
    """And not before: an exporter comes and goes with a roll-out."""
    clock, pods = Clock(), [OURS]
    exporter = DcgmExporter(lambda: pods, silent, clock)
    assert not exporter.runs()
    pods.append(ListedPod("gpu-operator", "nvidia-dcgm-exporter-5zv8q"))
    clock.now += ASK_SECONDS - 1
    assert not exporter.runs()
    clock.now += 1
    assert exporter.runs()
    pods.pop()
    clock.now += ASK_SECONDS
    assert not exporter.runs()


def test_a_kubelet_that_is_silent_is_asked_again_at_once() -> None:
    """When an agent starts, the first list of pods takes a moment."""
    lists: list[Sequence[ListedPod] | None] = [None, [ListedPod("gpu-operator", "nvidia-dcgm-exporter-5zv8q")]]
    exporter = DcgmExporter(lambda: lists.pop(0), silent, Clock())
    assert not exporter.runs()
    assert exporter.runs()


@contextmanager
def server(*parts: bytes, pause_seconds: float = 0.0) -> Iterator[int]:
    """Listen on a port of loopback, and say these parts to whoever comes, with pauses."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            peer, _ = listening.accept()
            with peer, suppress(OSError):  # who asked may have gone
                for part in parts:
                    peer.sendall(part)
                    time.sleep(pause_seconds)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


HEAD = b"HTTP/1.0 200 OK\r\n\r\n"


def test_dcgm_is_known_by_its_series() -> None:
    """Wherever in the answer a part ends."""
    with server(HEAD + b"# HELP DCGM", b"_FI_DEV_SM_CLOCK SM clock frequency\n", pause_seconds=0.05) as port:
        assert answers_as_dcgm("127.0.0.1", port)


def test_another_exporter_at_its_port_is_not_dcgm() -> None:
    """Such as the one of utkuozdemir."""
    with server(HEAD + b"nvidia_smi_utilization_gpu_ratio 0.5\n") as port:
        assert not answers_as_dcgm("127.0.0.1", port)


def test_nobody_at_the_port_is_no_dcgm() -> None:
    """Refused, or a name that leads nowhere."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert not answers_as_dcgm("127.0.0.1", port)
    assert not answers_as_dcgm("nowhere.invalid", port)


@pytest.mark.slow
def test_who_speaks_slowly_is_not_waited_for() -> None:
    """A second, and no second more for each byte."""
    begun = time.monotonic()
    with server(*[b"x"] * 50, pause_seconds=0.2) as port:
        assert not answers_as_dcgm("127.0.0.1", port)
    assert time.monotonic() - begun < 5
