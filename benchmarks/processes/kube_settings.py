"""With what the programs of a small control plane on loopback are started: flags and documents, as plain values.

No controllers and no kubelets are expected: what would wait for them is off. Users are static tokens, and RBAC decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

Flags = dict[str, object]
CLIENT_LIMITS: Final[Mapping[str, int]] = {"qps": 1000, "burst": 2000}
"""Of kube-scheduler's client: it never reaches them here."""


def command(program: Path, flags: Mapping[str, object]) -> list[str | Path]:
    """Return the command line that runs a program with these flags."""
    return [program, *(f"--{flag}={value}" for flag, value in flags.items())]


def etcd_flags(folder: Path, url: str, peer_url: str) -> Flags:
    """Return the flags of an etcd that serves `url`, keeps its data below `folder` and may lose it with the machine's power."""
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


def apiserver_flags(folder: Path, etcd_url: str, port: int) -> Flags:
    """Return the flags of a kube-apiserver on `port`, whose users are in `tokens_file(folder)`."""
    # Made with the certificate before it is read here, so no key has to be made or kept by us.
    key = folder / "apiserver" / "apiserver.key"
    return {
        "etcd-servers": etcd_url,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": key.parent,
        "endpoint-reconciler-type": "none",
        "service-cluster-ip-range": "10.0.0.0/24",
        "authorization-mode": "RBAC",
        "token-auth-file": tokens_file(folder),
        # Controllers would give pods their tokens and take the taint from new nodes.
        "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-signing-key-file": key,
        "service-account-key-file": key,
    }


def tokens_file(folder: Path) -> Path:
    """Return where the API server of `apiserver_flags` reads its users: lines of token, name, UID and groups."""
    return folder / "tokens.csv"


def ca_file(folder: Path) -> Path:
    """Return where the API server of `apiserver_flags` writes its certificate, with the CA that signed it."""
    return folder / "apiserver" / "apiserver.crt"


def scheduler_flags(configuration: Path, certificates: Path, port: int) -> Flags:
    """Return the flags of a kube-scheduler that answers probes on `port` and makes its own certificate in a folder."""
    return {
        "config": configuration,
        "authentication-skip-lookup": "true",
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": certificates,
    }


def controller_flags(
    kubeconfig: Path, ca: Path, key: Path, certificates: Path, port: int, controllers: str = "*"
) -> Flags:
    """Return the flags of a kube-controller-manager for the API server whose certificate authority and key these are."""
    return {
        "kubeconfig": kubeconfig,
        "root-ca-file": ca,
        "service-account-private-key-file": key,
        "controllers": controllers,
        "leader-elect": "false",
        "authentication-skip-lookup": "true",
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": certificates,
    }


def scheduler_configuration(given: Mapping[str, Any], kubeconfig: Path) -> dict[str, Any]:
    """Return a whole `KubeSchedulerConfiguration`: no leader election and no limit of its client, unless `given` has one."""
    connection = {**CLIENT_LIMITS, **given.get("clientConnection", {})}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        **given,
        "clientConnection": {**connection, "kubeconfig": str(kubeconfig)},
    }
