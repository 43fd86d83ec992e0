"""Who we are at the API server: the service account of our pod, or the user of kubeconfig files."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config_from_dict
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode

from extender.kubernetes.account import Account, Headers, read_account
from extender.kubernetes.reflector import Unavailable


@dataclass(frozen=True, slots=True)
class Credentials:
    """Whom requests come from, and whom they go to."""

    configuration: Configuration
    impersonation: Headers = ()


Login = Callable[[], Awaitable[Credentials]]
"""Reads the credentials as they are now; raises `ConfigException` or `OSError`."""


async def of_service_account() -> Credentials:
    """Read the files that the kubelet mounts into our pod."""
    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError):
        raise
    except Exception as error:  # the library lets out whatever it meets in a file that is none
        raise ConfigException(f"unreadable: {str(error) or type(error).__name__}") from error
    return Credentials(configuration)


async def of_kubeconfig(paths: Sequence[Path], context: str | None) -> Credentials:
    """Read the named context of these files, else the current one."""
    try:
        account = read_account(paths, context, os.environ)
    except Unavailable as error:
        raise ConfigException(str(error)) from error
    user = account.user
    if "exec" in user:
        user = await _run(account)
    document = {
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": account.cluster}],
        "users": [{"name": "c", "user": user}],
    }
    configuration = Configuration()
    try:
        await load_kube_config_from_dict(document, "c", client_configuration=configuration)  # type: ignore[no-untyped-call]
    except OSError:
        raise
    except Exception as error:  # as above
        raise ConfigException(f"{account.place}: {str(error) or type(error).__name__}") from error
    return Credentials(configuration, account.impersonation)


async def _run(account: Account) -> dict[str, Any]:
    """Return the user with what its exec command answers; a command that fails would leave us nobody."""
    settings = account.user["exec"]
    where = f"{account.place}: exec {settings['command']}"
    try:
        status = await ExecProvider(ConfigNode("exec", settings)).run()  # type: ignore[no-untyped-call]
    except FileNotFoundError as error:
        raise ConfigException(
            " ".join((f"{where}: not found", str(settings.get("installHint", "")))).strip()
        ) from error
    except (ConfigException, KeyError, OSError, TypeError) as error:
        raise ConfigException(f"{where}: {error}") from error
    said = status if isinstance(status, dict) else {}
    token, certificate, key = (
        value if isinstance(value := said.get(name), str) else ""
        for name in ("token", "clientCertificateData", "clientKeyData")
    )
    if not token and not (certificate and key):
        raise ConfigException(f"{where}: answers neither a token nor a certificate with its key")
    user = {name: value for name, value in account.user.items() if name != "exec"} | ({"token": token} if token else {})
    if certificate and key and not user.keys() & {"client-certificate", "client-certificate-data"}:
        pair = {"client-certificate-data": certificate, "client-key-data": key}
        user |= {name: b64encode(text.encode()).decode() for name, text in pair.items()}
    return user
