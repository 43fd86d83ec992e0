"""The real extender as a process of its own, for as long as a context is open."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.processes.process import Process, free_port, running

WITHOUT_VALUES: Final = {"scheduling": {"appraiseAfter": "1h"}}
"""Settings under which a few pods are placed alike on fast and slow machines.

By default the values of free GPUs are computed 15 s after the start. A fast machine has placed all of the pods by then.
"""


@dataclass(frozen=True, slots=True)
class RunningExtender:
    """An extender that is ready, ours or another one."""

    url: str
    process: Process
    path: str = "/v1/extender"
    """Where its verbs are."""
    is_threaded: bool = False
    """Whether any of its threads may answer, and not its main thread alone."""

    def cpu_ms(self) -> float:
        """Return what it has computed for its callers so far."""
        return self.process.threads_cpu_ms() if self.is_threaded else self.process.main_thread_cpu_ms()


@asynccontextmanager
async def running_extender(
    kubeconfig: Path, folder: Path, settings: Mapping[str, Any] | None = None, *, ticks: Path | None = None
) -> AsyncIterator[RunningExtender]:
    """Run `gputopo-extender` against the API server of `kubeconfig`, and enter once it is ready.

    `folder` takes its configuration and log; `settings` is merged into the configuration's top level. At its end `ticks` has what
    `benchmarks.processes.ticking` says of its event loop.
    """
    port = free_port()
    document = {
        "apiVersion": "config.gputopo.dev/v1alpha1",
        "kind": "ExtenderConfiguration",
        "listen": {"host": "127.0.0.1", "port": port},
        "kubernetes": {"kubeconfig": str(kubeconfig)},
        **(settings or {}),
    }
    config = folder / "extender.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    url = f"http://127.0.0.1:{port}"
    watched = ["benchmarks.processes.ticking", str(ticks)] if ticks else []
    command = [sys.executable, "-m", *watched, "extender", "--config", str(config)]
    async with running("extender", command, folder, f"{url}/readyz") as process:
        yield RunningExtender(url, process)
