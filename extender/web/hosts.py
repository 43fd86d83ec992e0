"""Which host names our pages answer to, so that no web page reads them by having its own name point here (DNS rebinding).

A name is ours that nobody can register: an address, `localhost`, a name without a dot, the cluster's own and private ones, this
machine's. Names of a proxy in front are configured. Behind TLS nobody is asked: a browser has no certificate of a scheduler.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

PRIVATE: Final = ("*.localhost", "*.svc", "*.cluster.local", "*.local", "*.internal")


class Hosts:
    """The names of one listener; `configured` may hold `*`."""

    def __init__(self, configured: Collection[str]) -> None:
        self._names = tuple(name.lower().rstrip(".") for name in (*PRIVATE, *configured, socket.gethostname()))

    def are_ours(self, host: str) -> bool:
        """Whether a `Host` header names us.

        >>> [Hosts(["gpus.example.com"]).are_ours(host) for host in ("127.0.0.1:8888", "gpus.example.com", "evil.example")]
        [True, True, False]
        """
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        return "." not in name or _is_address(name) or any(fnmatchcase(name, ours) for ours in self._names)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
