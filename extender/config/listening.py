"""Where the extender listens: for kube-scheduler, and for probes."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

from pydantic import Field, model_validator

from extender.kit.settings import Duration, Names, Section


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ListenSettings(Section):
    """Address for kube-scheduler, pages and JSON."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8888, ge=0, le=65535)
    """Port. 0 takes a free one and logs it."""
    allowed_hosts: Names = ()
    """Further host names that pages and JSON accept without TLS, such as a proxy's. `*` matches anything."""

    @property
    def is_private(self) -> bool:
        """Whether only our own machine, or pod, can connect."""
        return _is_loopback(self.host)


class TlsSettings(Section):
    """Mutual TLS, required unless `listen.host` is a loopback address. PEM files, read again when they change."""

    cert_file: Path | None = None
    """Certificate of the extender."""
    key_file: Path | None = None
    """Key of the certificate."""
    client_ca_file: Path | None = None
    """CA of kube-schedulers only, since each client with such a certificate can bind pods."""
    reload: Duration = 10.0
    """Interval for checking the files."""

    @model_validator(mode="after")
    def _is_whole(self) -> TlsSettings:
        if len({file is None for file in (self.cert_file, self.key_file, self.client_ca_file)}) > 1:
            raise ValueError("certFile, keyFile and clientCaFile go together")
        return self


class HealthSettings(Section):
    """Second listener for /livez, /readyz and /metrics only."""

    host: str = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from other addresses
    """Address to listen on. `::` is all of IPv4 and IPv6."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """Port. Default: only the listener of the verbs serves them."""
