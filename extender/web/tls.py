"""Mutual TLS for callers on other machines: who has no certificate of the clients' CA is refused before a byte of HTTP.

- Only TLS 1.3: kube-scheduler speaks it, and a session that is resumed, by which older versions skip the client's certificate,
  is never offered.
- The CA signs the certificates of callers and nothing else. Whoever has one may bind pods; with the cluster's own CA every
  kubelet could.
- Files that change are read again while we serve: the next handshake uses them, also to forget a CA. What cannot be used is
  reported and changes nothing, because a certificate and its key are rarely replaced in the same instant.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from extender.kit.plain_structlog import structlog

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Files:
    """PEM files: what we show, and whom we believe."""

    certificate: Path
    key: Path
    client_ca: Path


class Identity:
    """Who we are and whom we believe, as the files said when they were last of use.

    Raises `OSError` (which `ssl.SSLError` is) at the start, when they never were.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._digest = self._read_digest()
        self._newest = _context(files)
        self.context = _context(files)
        """For the listener; every handshake is handed over to the newest."""
        self.context.sni_callback = self._hand_over

    async def follow(self, every_seconds: float) -> NoReturn:
        """Look at the files again and again, until cancelled."""
        while True:
            await asyncio.sleep(every_seconds)
            self.refresh()

    def refresh(self) -> None:
        """Read the files if they have changed; keep what we have if they are of no use."""
        try:
            digest = self._read_digest()
            if digest == self._digest:
                return
            self._newest = _context(self._files)
        except OSError as error:
            log.error("certificates not renewed", reason=str(error))
            return
        self._digest = digest
        log.info("certificates renewed")

    def _hand_over(self, connection: ssl.SSLObject, _name: str | None, _listener: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _read_digest(self) -> bytes:
        files = (self._files.certificate, self._files.key, self._files.client_ca)
        return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).digest()


def _context(files: Files) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.client_ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context
