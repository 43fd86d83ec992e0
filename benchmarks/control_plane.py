"""A real control plane to measure on: etcd and kube-apiserver on loopback, and a kube-scheduler when it is wanted.

It is as small as it can be: one user who may do everything, no controllers, no kubelets. What the programs write goes into
one folder. The API server goes before its etcd, without which it would not heed SIGTERM.
"""

from __future__ import annotations

import asyncio
import csv
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.client import ApiClient
from benchmarks.process import Process, free_port, running

_OK = 200
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """An API server that serves."""

    binaries: Path
    folder: Path
    kubeconfig: Path


@asynccontextmanager
async def running_control_plane(binaries: Path, folder: Path) -> AsyncIterator[ControlPlane]:
    """Run etcd and kube-apiserver, and enter when pods can be created; raises `NotReady`."""
    etcd_url = f"http://127.0.0.1:{free_port()}"
    port = free_port()
    plane = ControlPlane(binaries, folder, folder / "admin.kubeconfig")
    token = secrets.token_hex(16)
    with (folder / "tokens.csv").open("w", newline="") as file:
        csv.writer(file).writerow([token, "admin", "admin", "system:masters"])
    etcd = _command(binaries / "etcd", _etcd_flags(folder, etcd_url))
    apiserver = _command(binaries / "kube-apiserver", _apiserver_flags(folder, etcd_url, port))
    async with (
        running("etcd", etcd, folder, f"{etcd_url}/health"),
        running("kube-apiserver", apiserver, folder, f"https://127.0.0.1:{port}/readyz"),
    ):
        _write_kubeconfig(plane.kubeconfig, port, folder / "apiserver" / "apiserver.crt", token)
        await _await_namespace(plane.kubeconfig)
        yield plane


@asynccontextmanager
async def running_scheduler(plane: ControlPlane, configuration: Mapping[str, Any]) -> AsyncIterator[Process]:
    """Run a kube-scheduler, and enter when it has listed the cluster; no limit of its client holds it back."""
    file = plane.folder / "kube-scheduler.json"
    connection = {"kubeconfig": str(plane.kubeconfig), "qps": 1000, "burst": 2000}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": connection,
        **configuration,
    }
    file.write_text(json.dumps(document))
    port = free_port()
    flags = {
        "config": file,
        "authentication-skip-lookup": "true",
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": plane.folder / "scheduler",
    }
    command = _command(plane.binaries / "kube-scheduler", flags)
    async with running("kube-scheduler", command, plane.folder, f"https://127.0.0.1:{port}/healthz") as process:
        yield process


async def _await_namespace(kubeconfig: Path) -> None:
    """Wait for the namespace that the server makes itself, a moment after it is ready."""
    async with ApiClient.from_kubeconfig(kubeconfig) as api:
        while (await api.call("GET", "/api/v1/namespaces/default")).code != _OK:  # noqa: ASYNC110 - it is not ours
            await asyncio.sleep(_POLL_SECONDS)


def _command(program: Path, flags: Mapping[str, object]) -> list[str | Path]:
    return [program, *(f"--{flag}={value}" for flag, value in flags.items())]


def _etcd_flags(folder: Path, url: str) -> dict[str, object]:
    peer_url = f"http://127.0.0.1:{free_port()}"
    return {
        "name": "etcd",
        "data-dir": folder / "etcd",
        "listen-client-urls": url,
        "advertise-client-urls": url,
        "listen-peer-urls": peer_url,
        "initial-advertise-peer-urls": peer_url,
        "initial-cluster": f"etcd={peer_url}",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }


def _apiserver_flags(folder: Path, etcd_url: str, port: int) -> dict[str, object]:
    certificates = folder / "apiserver"
    return {
        "etcd-servers": etcd_url,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": certificates,
        "endpoint-reconciler-type": "none",
        "service-cluster-ip-range": "10.0.0.0/24",
        "authorization-mode": "RBAC",
        "token-auth-file": folder / "tokens.csv",
        # Controllers would give pods their tokens and take the taint from new nodes.
        "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-signing-key-file": certificates / "apiserver.key",
        "service-account-key-file": certificates / "apiserver.key",
    }


def _write_kubeconfig(file: Path, port: int, ca: Path, token: str) -> None:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(ca)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "measured", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "measured", "context": {"cluster": "measured", "user": "admin"}}],
        "current-context": "measured",
    }
    file.write_text(json.dumps(config))
