"""N12: a container waits for a process that still computes on its GPUs, and is put off when that does not end."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.gpus.facts import GpuProcess
from tests.extender.polling import until
from tests.kubelet.node import AgentOnNode
from tests.kubelet.played import GPU3, playing
from tests.kubelet.pods import Phase, gpu_pod
from tests.nvml.library import FakeNvml

LEFTOVER = (GpuProcess(4711, "python train.py"),)
SOON_SECONDS = 2.0


@pytest.mark.slow
async def test_n12_container_starts_when_the_process_is_gone(tmp_path: Path) -> None:
    """With the GPUs that it was promised; nobody else has to wait for it."""
    async with AgentOnNode(tmp_path) as node:
        node.computing[node.gpus[1]] = LEFTOVER
        node.promise(pod := gpu_pod("waits", 2), {"c0": [1, 6]}, exact=True)
        await node.kubelet.run(pod)
        await node.place(gpu_pod("next", 2), [2, 3])
        assert pod.phase is Phase.PENDING
        node.computing.clear()
        await node.kubelet.started(pod)
        assert node.got(pod) == [node.named(1, 6)]
        assert b"holds_total{" not in node.metrics.text()


@pytest.mark.slow
async def test_n12_process_that_stays_puts_the_container_off(tmp_path: Path) -> None:
    """It is not the pod's fault: the kubelet tries again, and the container starts when the process has gone after all."""
    async with AgentOnNode(tmp_path, settings={"enforce.processWait": "500ms"}) as node:
        node.computing[node.gpus[1]] = LEFTOVER
        node.promise(pod := gpu_pod("waits", 1), {"c0": [1]}, exact=True)
        await node.kubelet.run(pod)
        await until(lambda: pod.reason)
        assert pod.reason == f"on hold: {node.gpus[1]} is still in use by process 4711 (python train.py)"
        assert b'holds_total{cause="process"} 1.0' in node.metrics.text()
        (waited,) = [seconds for name, seconds in node.kubelet.calls if name == "PreStartContainer"]
        assert waited >= 0.5
        node.computing.clear()
        await node.kubelet.started(pod)


async def test_process_on_other_gpus_is_none_of_its_business(tmp_path: Path) -> None:
    """NVML is asked about the container's own GPUs."""
    async with AgentOnNode(tmp_path) as node:
        node.computing[node.gpus[0]] = LEFTOVER
        assert node.got(await node.place(gpu_pod("p", 1), [1])) == [node.named(1)]


async def test_patience_of_nothing_asks_nobody(tmp_path: Path) -> None:
    """Where processes may share GPUs with containers, as an operator knows."""
    async with AgentOnNode(tmp_path, settings={"enforce.processWait": "0s"}) as node:
        node.nvml_answers.clear()
        assert node.got(await node.place(gpu_pod("p", 1), [1])) == [node.named(1)]


@pytest.mark.slow
async def test_nvml_that_hangs_holds_nobody_up_for_long(tmp_path: Path) -> None:
    """However many ask, and it proves nothing."""
    async with AgentOnNode(tmp_path) as node:
        node.nvml_answers.clear()
        pods = [gpu_pod(f"p{number}", 1) for number in range(5)]
        await node.kubelet.run(*pods)
        await node.kubelet.started(*pods)
        waits = [seconds for name, seconds in node.kubelet.calls if name == "PreStartContainer"]
        assert max(waits) < 2 * SOON_SECONDS


@pytest.mark.slow
async def test_n12_process_that_the_driver_shows_is_waited_for(tmp_path: Path, fake_nvml: FakeNvml) -> None:
    """By the whole agent, through NVML; an MPS server may stay."""
    async with playing(tmp_path, fake_nvml, enforce_processWait="1s") as node:
        node.say("gpu 0-7 process 11 /usr/bin/nvidia-cuda-mps-server")
        await node.kubelet.run(beside := gpu_pod("beside-mps", 8))
        await node.kubelet.started(beside)
        node.kubelet.delete(beside)
        node.say("gpu 3 process 4711 python train.py")
        await node.kubelet.run(pod := gpu_pod("waits", 8))
        await until(lambda: pod.reason)
        assert pod.reason == f"on hold: {GPU3} is still in use by process 4711 (python train.py)"
        node.repair()
        await node.kubelet.started(pod)
