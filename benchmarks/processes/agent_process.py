"""The real agent as a process of its own, for as long as a context is open; it reads whatever NVML is here."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.processes.process import Process, free_port, running


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """An agent that is ready."""

    url: str
    process: Process


@asynccontextmanager
async def running_agent(
    kubeconfig: Path, folder: Path, node: str, settings: Mapping[str, Any]
) -> AsyncIterator[RunningAgent]:
    """Run `gputopo-agent` for a node of the API server of `kubeconfig`, and enter once it is ready.

    There is no kubelet. `folder` takes what the agent keeps; `settings` is merged into the configuration's top level.
    """
    port = free_port()
    document = {
        "apiVersion": "config.gputopo.dev/v1alpha1",
        "kind": "AgentConfiguration",
        "nodeName": node,
        "kubernetes": {"kubeconfig": str(kubeconfig)},
        "kubelet": {name: str(folder / name) for name in ("devicePlugins", "podResources", "configFile")},
        "enforce": {"state": str(folder / node)},
        "health": {"host": "127.0.0.1", "port": port},
        **settings,
    }
    config = folder / f"{node}.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "agent", "--config", str(config)]
    async with running(node, command, folder, f"{url}/readyz") as process:
        yield RunningAgent(url, process)
