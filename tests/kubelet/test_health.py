"""N3: a GPU that has a critical error, or is lost, is offered to nobody some seconds later, and is back when it is well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agent.builders import FakeNode
from tests.extender.polling import until
from tests.kubelet.double import KubeletDouble
from tests.kubelet.whole_agent import running_on_nvml, settings
from tests.nvml.library import FakeNvml, has_compiler, machine
from topology import keys
from topology.codec import decode_status

GPU3 = "GPU-41000000-0000-4000-8000-000000000003"
GOAL_SECONDS = 10.0


@pytest.fixture(scope="module")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """Return the fake library."""
    if not has_compiler():
        pytest.skip("no C compiler to build the fake NVML with")
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


class Machine:
    """Eight GPUs, an agent in mode `enforce`, and its kubelet."""

    def __init__(self, description: Path, kubelet: KubeletDouble, node: FakeNode) -> None:
        self.description = description
        self.kubelet = kubelet
        self._node = node

    def say(self, line: str) -> None:
        """Change the machine: it reads so the next time that NVML is opened."""
        with self.description.open("a") as file:
            file.write(f"{line}\n")

    def error(self, gpu: int, number: int) -> None:
        """Have the driver report a critical error."""
        with Path(f"{self.description}.xids").open("a") as file:
            file.write(f"{gpu} {number}\n")

    @property
    def reasons(self) -> tuple[str, ...]:
        """What the node says of GPU 3."""
        status = decode_status(self._node.annotations[keys.STATUS])
        return next(gpu.reasons for gpu in status.gpus if gpu.uuid == GPU3)

    async def offers(self, count: int) -> float:
        """Wait until the kubelet has so many GPUs to give; returns how many seconds that took."""
        clock = asyncio.get_running_loop().time
        began = clock()
        await until(lambda: self.kubelet.allocatable == count, timeout_seconds=60)
        return clock() - began


@asynccontextmanager
async def playing(folder: Path, library: FakeNvml, **flags: str) -> AsyncIterator[Machine]:
    """Start it all, and wait until the kubelet has all GPUs and the agent listens."""
    description, node, kubelet = folder / "machine.nvml", FakeNode(), KubeletDouble(folder)
    description.write_text(machine("hgx_h100").read_text())
    await kubelet.start()
    with library.loaded(description):
        agent = running_on_nvml(settings(folder, kubelet, "enforce", **flags), node)
        told = await asyncio.to_thread(agent.__enter__)
        try:
            played = Machine(description, kubelet, node)
            await until(lambda: kubelet.registrations and kubelet.allocatable == 8, timeout_seconds=60)
            await until(lambda: told.coverage, timeout_seconds=60)
            yield played
        finally:
            await asyncio.to_thread(agent.__exit__, None, None, None)
    await kubelet.kill()


async def test_n3_gpu_with_a_critical_error_is_not_offered_and_comes_back(
    tmp_path: Path, fake_nvml: FakeNvml, figure: Callable[[str], None]
) -> None:
    """Between two looks at the node, which are half a minute apart; once it has been well for long enough it is offered again."""
    async with playing(tmp_path, fake_nvml, discovery_interval="30s", discovery_xidRecovery="3s") as node:
        node.error(3, 79)
        seconds = await node.offers(7)
        await until(lambda: node.reasons == ("xid 79",))
    figure(f"N3: a GPU with XID 79 is offered no more after {seconds:.1f} s (goal {GOAL_SECONDS:.0f})")
    assert seconds <= GOAL_SECONDS


async def test_gpu_comes_back_after_a_transient_error(tmp_path: Path, fake_nvml: FakeNvml) -> None:
    """Nobody has to start anything anew."""
    async with playing(tmp_path, fake_nvml, discovery_interval="500ms", discovery_xidRecovery="2s") as node:
        node.error(3, 94)
        await node.offers(7)
        await node.offers(8)
        await until(lambda: node.reasons == ())


async def test_n3_gpu_that_is_lost_stays_away_however_long_it_says_nothing(
    tmp_path: Path, fake_nvml: FakeNvml, figure: Callable[[str], None]
) -> None:
    """The error has the agent look, and the look finds the reason."""
    async with playing(tmp_path, fake_nvml, discovery_interval="30s", discovery_xidRecovery="100ms") as node:
        node.say("fail nvmlDeviceGetHandleByIndex_v2 3 GPU_IS_LOST")
        node.error(3, 79)
        seconds = await node.offers(7)
        await until(lambda: "gpu is lost" in node.reasons)
    figure(f"N3: a GPU that is lost is offered no more after {seconds:.1f} s (goal {GOAL_SECONDS:.0f})")
    assert seconds <= GOAL_SECONDS


async def test_error_of_an_application_changes_nothing(tmp_path: Path, fake_nvml: FakeNvml) -> None:
    """The one after it on another GPU shows that it was heard."""
    async with playing(tmp_path, fake_nvml, discovery_interval="30s") as node:
        node.error(3, 31)
        node.error(4, 79)
        await node.offers(7)
        assert GPU3 in node.kubelet.devices.healthy
