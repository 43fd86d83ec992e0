"""Which proxy the environment names for a server: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as kubectl reads them."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

_PORTS: Final = {"http": 80, "https": 443}


def proxy_of(url: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the variable and the URL of the proxy for a server; `None` for a server without a proxy.

    The variables in upper case count first. A server on this machine never has a proxy of the environment.
    """
    parts = urlsplit(url)
    name = f"{parts.scheme.upper()}_PROXY"
    variable = next((variable for variable in (name, name.lower()) if environment.get(variable)), None)
    exceptions = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)
    if variable is None or _is_local(host) or any(_matches(entry, host, str(port)) for entry in exceptions.split(",")):
        return None
    proxy = environment[variable]
    return variable, proxy if "://" in proxy else f"http://{proxy}"


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _matches(entry: str, host: str, port: str) -> bool:
    """Whether an entry of `NO_PROXY` is about a server: `*`, an address, a range of addresses, or a domain."""
    entry = entry.strip().lower()
    if entry in {"", "*"}:
        return entry == "*"
    if "/" in entry:
        return _is_in(host, entry)
    name, _, its_port = entry.rpartition(":") if entry.count(":") == 1 or "]:" in entry else (entry, "", "")
    if its_port not in {"", port}:
        return False
    name = name.strip("[]").removeprefix("*")
    return host == name or host.endswith(name if name.startswith(".") else f".{name}") or _is_in(host, name)


def _is_in(host: str, addresses: str) -> bool:
    try:
        return ip_address(host) in ip_network(addresses, strict=False)
    except ValueError:
        return False
