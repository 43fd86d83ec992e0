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
    """Where kube-scheduler calls us, and people look."""

    host: str = "127.0.0.1"
    """On which address."""
    port: int = Field(default=8888, ge=0, le=65535)
    """0 takes a free one and logs it."""
    allowed_hosts: Names = ()
    """Further host names that pages and JSON answer to without TLS, such as a proxy's; `*` stands for anything."""

    @property
    def is_private(self) -> bool:
        """Whether only our own machine, or pod, can connect."""
        return _is_loopback(self.host)


class TlsSettings(Section):
    """Mutual TLS for callers on other machines; without it we listen on loopback only. PEM files, read again when they change."""

    cert_file: Path | None = None
    """Our certificate."""
    key_file: Path | None = None
    """Its key."""
    client_ca_file: Path | None = None
    """A CA that signs the certificates of kube-schedulers and nothing else: whoever has one may bind pods."""
    reload: Duration = 10.0
    """How often the files are looked at."""

    @model_validator(mode="after")
    def _is_whole(self) -> TlsSettings:
        if len({file is None for file in (self.cert_file, self.key_file, self.client_ca_file)}) > 1:
            raise ValueError("certFile, keyFile and clientCaFile go together")
        return self


class HealthSettings(Section):
    """A second listener with nothing but /livez, /readyz and /metrics, for probes and scrapes from outside the pod."""

    host: str = "0.0.0.0"  # noqa: S104 - kubelet and Prometheus come from other addresses
    """On which address; `::` is all of IPv4 and IPv6."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """Where it is not set, they are served beside the verbs only."""
