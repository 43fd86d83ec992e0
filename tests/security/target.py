"""The real extender as a process to be attacked, against an API double; what it costs is read from the kernel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.extender_process import running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import Process, free_port
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join

MIB = 1 << 20


@dataclass(frozen=True)
class Target:
    """A running extender."""

    url: str
    health_url: str
    process: Process
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
        return self.process.log.read_text()

    def memory_bytes(self) -> int:
        """Return the resident set as it is now."""
        return self.process.memory_bytes()

    def peak_memory_bytes(self) -> int:
        """Return the largest resident set since `forget_peak`, or ever."""
        return self.process.peak_memory_bytes()

    def forget_peak(self) -> None:
        """Measure the peak from here."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    return parts.hostname, parts.port


@asynccontextmanager
async def target(
    folder: Path, *nodes: SimulatedNode, settings: Mapping[str, Any] | None = None, token: str = ""
) -> AsyncIterator[Target]:
    """Run an extender for a cluster of these nodes, with a token; `settings` replace sections of its configuration."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        write_kubeconfig(folder / "kubeconfig", server.url)
        add_token(folder / "kubeconfig", token)
        await join(api, nodes)
        health = {"host": "127.0.0.1", "port": free_port()}
        async with running_extender(folder / "kubeconfig", folder, {"health": health, **(settings or {})}) as extender:
            yield Target(extender.url, f"http://127.0.0.1:{health['port']}", extender.process, api)


def add_token(kubeconfig: Path, token: str) -> None:
    """Let whoever uses a kubeconfig say a token with each request."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    kubeconfig.write_text(yaml.safe_dump(document))


def filter_body(names: Sequence[str], gpus: int = 1) -> bytes:
    """Return the body of a filter call for a new pod."""
    pod: Json = gpu_pod("asked", gpus)
    pod["metadata"]["uid"] = "00000000-0000-0000-0000-000000000001"
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
