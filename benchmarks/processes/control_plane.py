"""A real control plane to measure on: etcd and kube-apiserver on loopback, and a kube-scheduler when it is wanted.

It is as small as it can be: one user who may do everything, no kubelets, and only the controllers that are wanted. What the
programs write goes into one folder. The API server goes before its etcd, without which it would not heed SIGTERM.
"""

from __future__ import annotations

import asyncio
import csv
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import kube_binaries, kube_settings
from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import Process, free_port, running

_OK = 200
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class RunningControlPlane:
    """An API server that serves."""

    binaries: Path
    folder: Path
    kubeconfig: Path


@asynccontextmanager
async def running_control_plane(
    binaries: Path, folder: Path, more_flags: Mapping[str, object] | None = None
) -> AsyncIterator[RunningControlPlane]:
    """Run etcd and kube-apiserver, with more flags if given, and enter when pods can be created; raises `NotReady`."""
    etcd_url, peer_url = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    plane = RunningControlPlane(binaries, folder, folder / "admin.kubeconfig")
    token = secrets.token_hex(16)
    with kube_settings.tokens_file(folder).open("w", newline="") as file:
        csv.writer(file).writerow([token, "admin", "admin", "system:masters"])
    etcd = kube_settings.etcd_flags(folder, etcd_url, peer_url)
    apiserver = {**kube_settings.apiserver_flags(folder, etcd_url, port), **(more_flags or {})}
    async with (
        _running(binaries, "etcd", etcd, folder, f"{etcd_url}/health"),
        _running(binaries, "kube-apiserver", apiserver, folder, f"{url}/readyz"),
    ):
        write_kubeconfig(plane.kubeconfig, url, user="admin", token=token, ca_file=kube_settings.ca_file(folder))
        await _await_namespace(plane.kubeconfig)
        yield plane


@asynccontextmanager
async def running_scheduler(
    plane: RunningControlPlane, configuration: Mapping[str, Any], more_flags: Mapping[str, object] | None = None
) -> AsyncIterator[Process]:
    """Run a kube-scheduler, and enter when it has listed the cluster; no limit of its client holds it back."""
    file = plane.folder / "kube-scheduler.json"
    file.write_text(json.dumps(kube_settings.scheduler_configuration(configuration, plane.kubeconfig)))
    port = free_port()
    flags = {**kube_settings.scheduler_flags(file, plane.folder / "scheduler", port), **(more_flags or {})}
    ready_url = f"https://127.0.0.1:{port}/healthz"
    async with _running(plane.binaries, "kube-scheduler", flags, plane.folder, ready_url) as process:
        yield process


@asynccontextmanager
async def running_controllers(plane: RunningControlPlane, controllers: str) -> AsyncIterator[Process]:
    """Run a kube-controller-manager with these controllers; no limit of its client holds it back."""
    port, ca = free_port(), kube_settings.ca_file(plane.folder)
    flags = {
        **kube_settings.controller_flags(
            plane.kubeconfig, ca, ca.with_suffix(".key"), plane.folder / "controllers", port, controllers
        ),
        "kube-api-qps": kube_settings.CLIENT_LIMITS["qps"],
        "kube-api-burst": kube_settings.CLIENT_LIMITS["burst"],
    }
    ready_url = f"https://127.0.0.1:{port}/healthz"
    async with _running(plane.binaries, kube_binaries.CONTROLLERS, flags, plane.folder, ready_url) as process:
        yield process


def _running(
    binaries: Path, program: str, flags: Mapping[str, object], folder: Path, ready_url: str
) -> AbstractAsyncContextManager[Process]:
    return running(program, kube_settings.command(binaries / program, flags), folder, ready_url)


async def _await_namespace(kubeconfig: Path) -> None:
    """Wait for the namespace that the server makes itself, a moment after it is ready."""
    async with ApiClient.from_kubeconfig(kubeconfig) as api:
        while (await api.call("GET", "/api/v1/namespaces/default")).code != _OK:  # noqa: ASYNC110 - it is not ours
            await asyncio.sleep(_POLL_SECONDS)
