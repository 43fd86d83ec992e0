"""The agent as its command starts it, on a machine whose script runs by the clock, says what the command line says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cli import app
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.resources import NODES
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from tests.agent.scripted.facts import as_lines, facts_of
from tests.extender.polling import until
from tests.invoking import call
from tests.nvml.library import FakeNvml, machine
from tests.nvml.script import Scripted
from topology.annotations import keys
from topology.annotations.status_codec import decode_status
from topology.node.status import GpuStatus

pytestmark = pytest.mark.waits

SCRIPT = """
at 2 xid 3 74
at 6 xid 1 95
at 8 xid 0 31
at 10 reset 1
at 11 gpu 0 banks_without_spares 1
at 12 fail * 2 GPU_IS_LOST
at 13 gpu 3 remap_failure 1
at 14 init DRIVER_NOT_LOADED
at 15 init SUCCESS
at 15 reset 2
"""
SLOWER = 3
"""So many of our seconds are one of the script's: some states last for one of those, and have to be written and read."""
SPEED = 300.0
"""The agent's hold is a second of the script, and five minutes on the command line."""
UNTIL = 17.0
FLAGS = {
    "GPUTOPO_HEALTH_PORT": "0",
    "GPUTOPO_DISCOVERY_INTERVAL": "200ms",
    "GPUTOPO_DISCOVERY_XID_RECOVERY": f"{SLOWER}s",
}
UUIDS = [f"GPU-41000000-0000-4000-8000-00000000000{index}" for index in range(4)]
_STATES = {"suspect: ": "suspect", "on probation: ": "probation", "failed: ": "failed"}


def state_of(gpu: GpuStatus) -> str | None:
    """Return the machine's state, as the node's annotation says it; `None` while NVML as a whole does not work."""
    told = gpu.reasons[0] if gpu.reasons else ""
    if told.startswith("nvml unavailable"):
        return None
    named = next((state for prefix, state in _STATES.items() if told.startswith(prefix)), None)
    if told == "row remap failed":
        return "failed"  # NVML's own reason stands in the place of the machine's
    return named or ("healthy" if gpu.healthy else "quarantined")


@asynccontextmanager
async def running(folder: Path, library: FakeNvml, played: Scripted) -> AsyncIterator[ObjectStore]:
    """Run an agent until it has written its node; give what the API server has."""
    store = ObjectStore()
    store.create(NODES, "", {"metadata": {"name": "n1"}})
    async with ApiServer(store) as server:
        write_kubeconfig(folder / "kubeconfig", server.url)
        command = [sys.executable, "-m", "agent", "--node-name", "n1", "--kubeconfig", str(folder / "kubeconfig")]
        own = {"GPUTOPO_ENFORCE_STATE": str(folder), "GPUTOPO_KUBELET_POD_RESOURCES": str(folder / "none.sock")}
        environment = os.environ | library.environment(played.description) | FLAGS | own
        with (folder / "log").open("w") as log:
            agent = await asyncio.create_subprocess_exec(*command, env=environment, stderr=log)
        try:
            await until(lambda: "wrote the node" in (folder / "log").read_text())
            await until(lambda: "listening for critical errors" in (folder / "log").read_text())
            yield store
        finally:
            agent.terminate()
            await asyncio.wait_for(agent.wait(), 30)


async def test_the_agents_process_has_the_course_that_the_command_line_says(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    """Errors, a reset, a GPU that is lost, a driver that is loaded anew: the same states in the same order, of each GPU."""
    description = tmp_path / "machine.nvml"
    description.write_text(machine("watched_h100").read_text())
    played = Scripted(description, SCRIPT)
    seen: dict[str, list[str]] = {uuid: ["healthy"] for uuid in UUIDS}
    async with running(tmp_path, fake_nvml, played) as store:
        played.begin(1 / SLOWER)
        end = time.monotonic() + UNTIL * SLOWER
        while time.monotonic() < end:
            node = store.get(NODES, "", "n1")
            for gpu in decode_status(node["metadata"]["annotations"][keys.STATUS]).gpus:
                state = state_of(gpu)
                if state and seen[gpu.uuid][-1] != state:
                    seen[gpu.uuid].append(state)
            await asyncio.sleep(0.02)
    slowed = [replace(step, at=step.at * SPEED) for step in played.steps]
    (tmp_path / "facts").write_text(as_lines(facts_of(slowed, UUIDS)))
    done = call(app, "health", str(tmp_path / "facts"), "--until", str(UNTIL * SPEED), "-o", "json")
    said = {gpu: [change["state"] for change in changes] for gpu, changes in json.loads(done.stdout)["gpus"].items()}
    assert {gpu: states[1:] for gpu, states in seen.items()} == said
    assert said[UUIDS[3]] == ["quarantined", "probation", "failed"]
