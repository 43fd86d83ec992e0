"""The agent's figures, printed with their goals: how soon it answers its kubelet beside 50 pods, and what it takes to run.

The goals are those of an idle machine, and are asked for with `--long`; else ten times as much may be taken, as other tests may
run beside this one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from math import ceil
from pathlib import Path
from types import MappingProxyType

import pytest

from agent.node.kube import KubernetesNode
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import Process
from benchmarks.simulated.double.resources import NODES
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from tests.extender.polling import until
from tests.kubelet.double import KubeletDouble
from tests.kubelet.node import AgentOnNode
from tests.kubelet.pods import gpu_pod, share_pod
from tests.nvml.library import FakeNvml, machine
from topology.annotations.keys import LEDGER
from topology.annotations.records import Claim, Ledger, encode_ledger

OTHERS = 50
MIB = 1 << 20
"""In KiB, as /proc counts."""
GOAL_MIB, GOAL_PERCENT = 80, 0.5
REST_SECONDS = 12


def percentile(seconds: Iterable[float], share: float) -> float:
    """Return a percentile in milliseconds: the least value that this share of them does not exceed."""
    ordered = sorted(seconds)
    return 1000 * ordered[ceil(share * len(ordered)) - 1]


class ReadOverHttp(AgentOnNode):
    """An agent that reads its Node, of a usual size, from an API server before it looks into the ledger."""

    def __init__(self, folder: Path, url: str) -> None:
        write_kubeconfig(folder / "kubeconfig", url)
        self._own = KubernetesNode("n1", folder / "kubeconfig", None, 5.0)
        super().__init__(folder, settings={"kubelet.interval": "1s"})

    def _read(self) -> Mapping[str, str]:
        self._own.read()
        return super()._read()


def store_with_node(annotations: Mapping[str, str] = MappingProxyType({})) -> ObjectStore:
    """Return what an API server has of a node with fifty images, as nodes have."""
    store = ObjectStore()
    images = [{"names": [f"registry.example/{'x' * 200}@{number}"], "sizeBytes": number} for number in range(OTHERS)]
    store.create(
        NODES, "", {"metadata": {"name": "n1", "annotations": dict(annotations)}, "status": {"images": images}}
    )
    return store


@pytest.mark.alone
async def test_answers_to_the_kubelet(
    tmp_path: Path, pytestconfig: pytest.Config, figure: Callable[[str], None]
) -> None:
    """From the kubelet's question to the agent's answer; kubelet and API server share the agent's thread."""
    async with ApiServer(store_with_node()) as server, ReadOverHttp(tmp_path, server.url) as node:
        identified: list[float] = []
        node.metrics.identified = identified.append  # type: ignore[assignment, method-assign]
        await node.kubelet.run(*(gpu_pod(f"other-{number}", 0) for number in range(OTHERS)))
        for number in range(100):
            wanted = range(1 + number % 4)
            node.delete(await node.place(gpu_pod(f"p{number}", len(wanted)), list(wanted)))
        asked = [seconds for name, seconds in node.kubelet.calls if name == "GetPreferredAllocation"]
        taken = [seconds for name, seconds in node.kubelet.calls if name == "Allocate"]
    both = [first + second for first, second in zip(asked, taken, strict=True)]
    p50, p99, p99_both = percentile(identified, 0.5), percentile(identified, 0.99), percentile(both, 0.99)
    figure(
        f"beside {OTHERS} pods: identification p50 {p50:.1f} ms (goal 5), p99 {p99:.1f} ms (goal 25); "
        f"GetPreferredAllocation and Allocate p99 {p99_both:.1f} ms (goal 100)"
    )
    slack = 1 if pytestconfig.getoption("--long") else 10
    assert len(both) == len(identified) == 100
    assert p50 <= slack * 5
    assert p99 <= slack * 25
    assert p99_both <= slack * 100


@pytest.mark.alone
async def test_answers_about_a_thousand_share_devices(
    tmp_path: Path, pytestconfig: pytest.Config, figure: Callable[[str], None]
) -> None:
    """Eight GPUs of 192 GiB: each question names up to 1,536 devices, and each look lists them."""
    flags = {"sharing.gpus": "all", "sharing.limits": "preferred", "kubelet.interval": "1s"}
    node = AgentOnNode(tmp_path, settings=flags)
    node.share_gib = 192
    async with node:
        for number in range(OTHERS):
            await node.share(share_pod(f"other-{number}", 12), number % 8)
        node.kubelet.calls.clear()
        for number in range(40):
            node.delete(await node.share(share_pod(f"p{number}", 1 + number % 40), number % 8))
        asked, taken, started = (
            [seconds for name, seconds in node.kubelet.calls if name == call]
            for call in ("GetPreferredAllocation", "Allocate", "PreStartContainer")
        )
        began = time.perf_counter()
        for _ in range(10):
            await node.watch.look()
        look_ms = 100 * (time.perf_counter() - began)
        began = time.perf_counter()
        node.kubelet.shares.healthy = set()
        node.watch._devices.repeat()
        await until(lambda: len(node.kubelet.shares.healthy) == 8 * 192)
        told_ms = 1000 * (time.perf_counter() - began)
    figure(
        f"1,536 share devices, {OTHERS} pods: GetPreferredAllocation p50 {percentile(asked, 0.5):.1f} ms, "
        f"p99 {percentile(asked, 0.99):.1f}; Allocate p99 {percentile(taken, 0.99):.1f}; PreStartContainer p99 "
        f"{percentile(started, 0.99):.1f}; a look {look_ms:.0f} ms; a list of devices told in {told_ms:.0f} ms"
    )
    slack = 1 if pytestconfig.getoption("--long") else 10
    assert percentile([a + b for a, b in zip(asked, taken, strict=True)], 0.99) <= slack * 100


PLANNED = {"p": 2, "q": 4}
"""Pods whose GPUs the ledger promises, and how many."""


def ledger() -> str:
    """Return what the fake library's machine of eight promises to them."""
    owners = [name for name, count in PLANNED.items() for _ in range(count)]
    uuids = (f"GPU-41000000-0000-4000-8000-00000000000{number}" for number in range(8))
    claims = (Claim(uuid, f"uid-{name}", "default", name, "c0", "1") for name, uuid in zip(owners, uuids, strict=False))
    return encode_ledger(Ledger(1, tuple(claims)))


@pytest.mark.waits
@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_at_rest(
    tmp_path: Path, mode: str, fake_nvml: FakeNvml, pytestconfig: pytest.Config, figure: Callable[[str], None]
) -> None:
    """Memory and CPU of the agent's own process when it has handed out planned GPUs; memory when it had to choose some itself."""
    async with KubeletDouble(tmp_path) as kubelet, ApiServer(store_with_node({LEDGER: ledger()})) as server:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        flags = {
            "GPUTOPO_MODE": mode,
            "GPUTOPO_KUBELET_DEVICE_PLUGINS": str(kubelet.plugins),
            "GPUTOPO_KUBELET_POD_RESOURCES": str(kubelet.pod_resources / "kubelet.sock"),
            "GPUTOPO_ENFORCE_STATE": str(tmp_path / "state"),
            "GPUTOPO_HEALTH_PORT": "0",
        }
        command = [sys.executable, "-m", "agent", "--node-name", "n1", "--kubeconfig", str(tmp_path / "kubeconfig")]
        environment = os.environ | fake_nvml.environment(machine("hgx_h100")) | flags
        with (tmp_path / "log").open("w") as log:
            agent = await asyncio.create_subprocess_exec(*command, env=environment, stderr=log)

        def told(what: str) -> int:
            return (tmp_path / "log").read_text().count(what)

        process = Process(agent.pid, tmp_path / "log")

        def mebibytes() -> float:
            return process.memory_bytes() / MIB

        async def percent_of_a_core() -> float:
            began, computed = time.monotonic(), process.cpu_seconds()
            await asyncio.sleep(REST_SECONDS)
            return 100 * (process.cpu_seconds() - computed) / (time.monotonic() - began)

        try:
            await until(lambda: told("wrote the node"))
            if mode == "enforce":
                await until(lambda: kubelet.registrations and kubelet.allocatable == 8)
                await kubelet.run(*(gpu_pod(name, count) for name, count in PLANNED.items()))
                await until(lambda: told("allocated") == told('"basis":"planned"') == len(PLANNED))
            figure(f"agent in mode {mode}: {(at_rest := mebibytes()):.0f} MiB (goal {GOAL_MIB})")
            assert at_rest <= GOAL_MIB + 2, "two for another Python"
            await asyncio.sleep(3)  # what follows a start
            figure(
                f"agent in mode {mode}: {(computes := await percent_of_a_core()):.2f} % of a core (goal {GOAL_PERCENT})"
            )
            assert computes < GOAL_PERCENT * (1 if pytestconfig.getoption("--long") else 4)
            if mode == "enforce":
                await kubelet.run(gpu_pod("unplanned", 1))
                await until(lambda: told("free GPUs have computed values"))
                figure(f"agent in mode {mode} that had to choose itself: {(chose := mebibytes()):.0f} MiB")
                assert at_rest < chose < 100, "its limit in the chart is 128"
        finally:
            agent.terminate()
            await asyncio.wait_for(agent.wait(), 30)
