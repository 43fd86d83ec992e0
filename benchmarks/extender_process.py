"""The real extender as a process of its own, for as long as a context is open."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

READY_WITHIN_SECONDS = 30.0
STOP_WITHIN_SECONDS = 5.0


class NotReady(Exception):
    """The extender did not become ready; the text ends with the last lines of its log."""


@contextmanager
def running_extender(kubeconfig: Path, folder: Path, settings: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Run `gputopo-extender` against the API server of `kubeconfig` and give its URL once it is ready.

    `folder` takes its configuration and log; `settings` is merged into the configuration's top level.
    """
    port = free_port()
    document = {
        "apiVersion": "config.gputopo.dev/v1alpha1",
        "kind": "ExtenderConfiguration",
        "listen": {"host": "127.0.0.1", "port": port},
        "kubernetes": {"kubeconfig": str(kubeconfig)},
        **(settings or {}),
    }
    config, log = folder / "extender.yaml", folder / "extender.log"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "extender", "--config", str(config)], stdout=output, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_ready(process, url, log)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(STOP_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a loopback port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until `url`/readyz answers; raises `NotReady`."""
    end = time.monotonic() + READY_WITHIN_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=1):  # noqa: S310 - our own URL
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
    raise NotReady(f"the extender is not ready (exit code {process.poll()}):\n{tail}")
