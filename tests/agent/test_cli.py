"""`gputopo-agent` as people start it: another process that finds the library where a driver would have put it.

What never asks for that library is called in this process, and so is what says how its answers are printed.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.__main__ import app
from agent.node.kube import pointer
from tests.agent.expected import expected_matrix
from tests.agent.gpus.test_matrix import cells
from tests.agent.node.test_kube import Server, kubeconfig
from tests.invoking import Done, call
from tests.nvml.library import FakeNvml, machine
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.formats.matrix import parse_matrix

Start = Callable[..., subprocess.CompletedProcess[str]]
Here = Callable[..., Done]
COMMAND = [sys.executable, "-m", "agent"]


def without_gpus(*arguments: str) -> Done:
    """Call the command in this process, which finds no library unless one is loaded."""
    return call(app, *arguments, NODE_NAME=None)


@pytest.fixture
def agent(fake_nvml: FakeNvml) -> Start:
    """Run the agent on a described machine, to its end; `None` is a node without the library."""

    def _agent(described: str | None, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        library = fake_nvml.environment(machine(described)) if described else {}
        clean = {name: value for name, value in os.environ.items() if name != "NODE_NAME"}
        return subprocess.run(
            [*COMMAND, *arguments],
            env=clean | library | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return _agent


@pytest.fixture
def agent_here(fake_nvml: FakeNvml) -> Here:
    """Call the agent on a described machine in this process."""

    def _agent(described: str, *arguments: str) -> Done:
        with fake_nvml.loaded(machine(described)):
            return without_gpus(*arguments)

    return _agent


@pytest.mark.slow
def test_once_prints_the_topology_payload_and_nothing_else(agent: Start, agent_here: Here) -> None:
    """One JSON document on standard output, in the form of the annotation."""
    done = agent("hgx_h100", "--once", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    payload = json.loads(done.stdout)
    assert payload["v"] == 1
    assert {"uuid", "index", "model", "memory_bytes", "pci", "numa_node"} <= payload["gpus"][0].keys()
    assert decode_topology(done.stdout.strip()).label(0, 7) == "NV18"
    assert agent_here("hgx_h100", "--once").stdout == done.stdout


@pytest.mark.parametrize("name", ["dgx1v", "hgx_h100", "pcie_l40s", "old_driver"])
def test_once_prints_the_matrix(name: str, agent_here: Here) -> None:
    """Which our own parser reads back, and which is the one described."""
    done = agent_here(name, "--once", "-o", "matrix")
    assert (done.returncode, done.stderr) == (0, "")
    assert cells(parse_matrix(done.stdout)) == expected_matrix(machine(name))


@pytest.mark.slow
def test_at_a_terminal_once_prints_the_matrix(fake_nvml: FakeNvml) -> None:
    """Where nothing else is asked for; programs get the document."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, **fake_nvml.environment(machine("dgx1v"))}
    with os.fdopen(ours, "rb", buffering=0), os.fdopen(theirs, "wb", buffering=0) as terminal:
        subprocess.run([*COMMAND, "--once"], env=environment, stdout=terminal, timeout=120, check=True)
        printed = os.read(ours, 1 << 16).decode()
    assert "GPU0" in printed
    assert "{" not in printed


def test_bad_gpu_is_named_beside_the_others(agent_here: Here) -> None:
    """The answer is yes, and standard error says who is missing."""
    done = agent_here("lost_gpu", "--once", "-o", "matrix")
    assert (done.returncode, done.stderr) == (0, "index-3: gpu is lost\n")
    assert "GPU7" in done.stdout


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ("no_driver", "no NVIDIA driver: the kernel module is not loaded (DRIVER_NOT_LOADED)"),
        ("driver_updated", "the NVIDIA driver was updated"),
        ("no_gpu", "the NVIDIA driver works, and finds no GPU"),
    ],
)
def test_node_without_gpus_is_a_clear_no(described: str, reason: str, agent_here: Here) -> None:
    """Exit code 1, nothing on standard output, and which it is on standard error."""
    done = agent_here(described, "--once")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(reason)


@pytest.mark.slow
def test_node_without_the_library_is_a_clear_no(agent: Start) -> None:
    """It is told from a driver that does not work."""
    done = agent(None, "--once")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no NVIDIA driver: libnvidia-ml.so.1 is not installed here (LIBRARY_NOT_FOUND)")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--nonsense"], "--nonsense"),
        (["--once", "-o", "xml"], "xml"),
        (["-o", "json"], "-o goes with --once"),
        (["--interval", "soon"], "discovery.interval: not a duration"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: No such file"),
        ([], "which node is this?"),
    ],
)
def test_bad_usage_is_exit_2(arguments: list[str], reason: str) -> None:
    """With what is wrong on standard error."""
    done = without_gpus(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_print_config_needs_no_gpu() -> None:
    """It is how people begin a file of their own."""
    done = without_gpus("--print-config", "--node-name", "node-1")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "apiVersion: config.gputopo.dev/v1alpha1\nkind: AgentConfiguration\nnodeName: node-1\n"
    )


@pytest.mark.slow
def test_no_credentials_is_a_clear_no(agent: Start) -> None:
    """Neither a pod nor a kubeconfig."""
    done = agent("hgx_h100", "--node-name", "node-1")
    assert done.returncode == 1
    assert "no credentials" in done.stderr


@pytest.mark.slow
def test_service_publishes_serves_probes_and_stops_when_told(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """The whole agent against an API server of one answer: it writes, it is ready, it logs JSON, it ends."""
    server = Server()
    settings = {"GPUTOPO_HEALTH_PORT": "0", "GPUTOPO_ENFORCE_STATE": str(tmp_path)}
    environment = os.environ | fake_nvml.environment(machine("hgx_h100")) | settings
    command = [*COMMAND, "--node-name", "node-1", "--kubeconfig", str(kubeconfig(tmp_path, server.url))]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        lines = [json.loads(process.stderr.readline()) for _ in range(3)]
        assert sorted(line["msg"] for line in lines) == ["listening for critical errors", "started", "wrote the node"]
        assert list(lines[0])[:4] == ["ts", "level", "logger", "msg"]
        for path, text in (("livez", "ok"), ("readyz", "ok"), ("metrics", 'gputopo_agent_gpus{state="healthy"} 8.0')):
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]['probes']}/{path}", timeout=60) as reply:
                assert text in reply.read().decode()
        read, written, *_ = (request for request in server.requests if "watch=true" not in request[1])
        assert (read[0], written[0]) == ("GET", "PATCH")
        assert pointer(keys.TOPOLOGY) in {step["path"] for step in written[3]}
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()
        server.close()
