"""The kubectl plugin, run against a small cluster of the API double."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import structlog
from typer.testing import CliRunner, Result

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from extender.kubectl.cli import app
from topology.annotations import keys

PODS = "/api/v1/namespaces/default/pods"
BEGAN = datetime.now(UTC)
"""When everything was created, in each of these clusters: which of two pods is the older must not hang on the clock."""
NODES = (SimulatedNode("n1", "dgx-a100", used=(0, 1)), SimulatedNode("n2", "t4-4"))


def invoke(*arguments: str, given: str | None = None) -> Result:
    """Run the plugin in this process, `given` as its standard input; what an extender logs beside it is not its output."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        return CliRunner().invoke(app, arguments, input=given)
    finally:
        structlog.configure(**before)


async def plugin(tmp_path: Path, *arguments: str) -> Result:
    """Run it where two nodes are, `waits` fits on one of them, and `huge` and `odd` do on none."""
    async with ApiServer(ObjectStore(now=lambda: BEGAN)) as server, ApiClient(server.url) as api:
        await join(api, NODES)
        for name, gpus, wants in (
            ("waits", 4, {keys.REQUIRED_AFFINITY: "nvlink"}),
            ("huge", 16, {keys.REQUIRED_AFFINITY: "nvlink"}),
            ("odd", 1, {keys.USER_PREFIX + "required-afinity": "nvlink"}),
        ):
            (await api.call("POST", PODS, gpu_pod(name, gpus, wants, schedulerName="gputopo"))).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        return await asyncio.to_thread(invoke, *arguments, "--kubeconfig", str(tmp_path / "kubeconfig"))
