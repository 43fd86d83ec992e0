"""The real extender as a process to be attacked, against an API double; what it costs is read from the kernel."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import yaml

from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import free_port
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import Store
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from tests.extender.polling import eventually

MIB = 1 << 20


@dataclass(frozen=True)
class Target:
    """A running extender."""

    url: str
    health_url: str
    pid: int
    folder: Path
    api: ApiClient

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the verbs."""
        return _address(self.url)

    @property
    def health_address(self) -> tuple[str, int]:
        """Host and port of probes and metrics."""
        return _address(self.health_url)

    @property
    def log(self) -> str:
        """What it has logged."""
        return (self.folder / "extender.log").read_text()

    def memory_bytes(self) -> int:
        """Return the resident set as it is now."""
        return self._status("VmRSS")

    def peak_memory_bytes(self) -> int:
        """Return the largest resident set since `forget_peak`, or ever."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Measure the peak from here."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _status(self, field: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
        return int(kilobytes) << 10


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    return parts.hostname, parts.port


@asynccontextmanager
async def target(
    folder: Path, *nodes: SimulatedNode, settings: Mapping[str, Any] | None = None, token: str = ""
) -> AsyncIterator[Target]:
    """Run an extender for a cluster of these nodes, with a token; `settings` replace sections of its configuration."""
    async with ApiServer(Store()) as server, ApiClient(server.url) as api:
        write_kubeconfig(folder / "kubeconfig", server.url)
        add_token(folder / "kubeconfig", token)
        await join(api, nodes)
        port, health_port = free_port(), free_port()
        document = {
            "apiVersion": "config.gputopo.dev/v1alpha1",
            "kind": "ExtenderConfiguration",
            "listen": {"port": port},
            "health": {"host": "127.0.0.1", "port": health_port},
            "kubernetes": {"kubeconfig": str(folder / "kubeconfig")},
            **(settings or {}),
        }
        (folder / "extender.yaml").write_text(yaml.safe_dump(document))
        with (folder / "extender.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "extender", "--config", folder / "extender.yaml"), stdout=log, stderr=log
            )
        health_url = f"http://127.0.0.1:{health_port}"
        try:
            await eventually(lambda: is_ready(health_url, process), 60)
            yield Target(f"http://127.0.0.1:{port}", health_url, process.pid, folder, api)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def add_token(kubeconfig: Path, token: str) -> None:
    """Let whoever uses a kubeconfig say a token with each request."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    kubeconfig.write_text(yaml.safe_dump(document))


async def is_ready(url: str, process: asyncio.subprocess.Process) -> bool:
    assert process.returncode is None, "the extender ended during its start"
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def filter_body(names: Sequence[str], gpus: int = 1) -> bytes:
    """Return the body of a filter call for a new pod."""
    pod: Json = gpu_pod("asked", gpus)
    pod["metadata"]["uid"] = "00000000-0000-0000-0000-000000000001"
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
