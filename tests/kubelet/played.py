"""A whole agent in mode `enforce` on a machine that the fake NVML plays, beside the kubelet double."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.agent.builders import FakeNode
from tests.extender.polling import until
from tests.kubelet.double import KubeletDouble
from tests.kubelet.whole_agent import in_a_thread, running_on_nvml, settings
from tests.nvml.library import FakeNvml, machine
from topology.annotations import keys
from topology.annotations.status_codec import decode_status

GPU3 = "GPU-41000000-0000-4000-8000-000000000003"


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

    def repair(self) -> None:
        """Make the machine what it was at first; nobody reads half of it."""
        new = self.description.with_suffix(".new")
        new.write_text(machine("hgx_h100").read_text())
        new.replace(self.description)

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
    kubelet, node = KubeletDouble(folder), FakeNode()
    played = Machine(folder / "machine.nvml", kubelet, node)
    played.repair()
    with library.loaded(played.description):
        agent = running_on_nvml(settings(folder, kubelet, "enforce", **flags), node)
        async with kubelet, in_a_thread(agent) as told:
            await until(lambda: kubelet.registrations and kubelet.allocatable == 8, timeout_seconds=60)
            await until(lambda: told.coverage, timeout_seconds=60)
            yield played
