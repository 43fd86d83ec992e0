"""HTTP for probes and scrapes, at a price that does not depend on how many strangers come.

Its port is open to the network, and its process has more important work. So callers are served in rounds, with pauses between
them: a few arrivals a round, one request a connection, a bounded number of connections. A slow caller is cut at a
deadline, and sooner where others need the place. Then the oldest connection of the address with the most connections
goes. So a crowd is turned over quickly, and whoever asks at once is answered in its midst.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

TEXT: Final = "text/plain; charset=utf-8"
ROUND_SECONDS: Final = 0.003
"""Between two rounds."""
ARRIVALS: Final = 8
"""Taken in at most in one round, some 60 µs each."""
VISITORS: Final = 64
"""Connections at most, between rounds."""
MAX_HEAD_BYTES: Final = 8 << 10
"""Of a request's first line and headers; a probe's are some hundred bytes."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""`SO_LINGER` for 0 s: nothing that the peer has not taken stays in the kernel."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a GET is answered with."""

    status: int
    body: bytes
    content_type: str = TEXT


Pages = Callable[[str, str], Page]
"""Path and query → page."""


class Visits:
    """The connections of one listening socket, each of which may stay `seconds`."""

    def __init__(self, listening: socket.socket, pages: Pages, seconds: float) -> None:
        listening.setblocking(False)
        self._listening = listening
        self._pages = pages
        self._seconds = seconds
        self._present: list[_Visit] = []

    def __len__(self) -> int:
        return len(self._present)

    def serve_round(self, now: float) -> None:
        """Let some in, do for everybody what can be done at once, and see out who is done or has stayed too long.

        `now` is monotonic, in seconds. At most `ARRIVALS + VISITORS` connections are looked at, each of them once.
        """
        staying = []
        for visit in [*self._present, *self._arrivals(now)]:
            if visit.is_over(self._pages, now):
                visit.close()
            else:
                staying.append(visit)
        while len(staying) > VISITORS:
            [(crowd, _)] = Counter(visit.address for visit in staying).most_common(1)
            first = next(visit for visit in staying if visit.address == crowd)
            staying.remove(first)
            first.close()
        self._present = staying

    def close(self) -> None:
        """See everybody out."""
        for visit in self._present:
            visit.close()
        self._present = []

    def _arrivals(self, now: float) -> list[_Visit]:
        arrived: list[_Visit] = []
        with contextlib.suppress(
            OSError
        ):  # nobody is there, or somebody has gone again, or we are out of file descriptors
            while len(arrived) < ARRIVALS:
                peer, (address, *_) = self._listening.accept()
                arrived.append(_Visit(peer, address, now + self._seconds))
        return arrived


class _Visit:
    """One connection: a request comes in, its answer goes out, the peer hangs up."""

    def __init__(self, peer: socket.socket, address: str, ends_at: float) -> None:
        peer.setblocking(False)
        self.address = address
        self._peer = peer
        self._ends_at = ends_at
        self._received = b""
        self._unsent: bytes | None = None
        """`None` until the request is complete."""

    def is_over(self, pages: Pages, now: float) -> bool:
        """Do what can be done without waiting; return whether there is nothing more to wait for."""
        try:
            if self._unsent is None:
                self._receive(pages)
            if self._unsent:
                self._send(self._unsent)
            elif self._unsent is not None and not self._peer.recv(MAX_HEAD_BYTES):
                return True
        except BlockingIOError:
            pass
        except OSError:
            return True
        return now >= self._ends_at

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._peer.close()

    def _receive(self, pages: Pages) -> None:
        if not (data := self._peer.recv(MAX_HEAD_BYTES)):
            raise ConnectionResetError
        self._received += data
        head, end, _ = self._received.partition(b"\r\n\r\n")
        if end:
            self._unsent = _answer(head, pages)
        elif len(self._received) > MAX_HEAD_BYTES:
            self._unsent = _written(Page(431, b"too much is said\n"))

    def _send(self, unsent: bytes) -> None:
        self._unsent = unsent[self._peer.send(unsent) :]
        if not self._unsent:
            # The peer hangs up when it has read all; were we the first to close, the rest of what it says would reset it.
            self._peer.shutdown(socket.SHUT_WR)


def _answer(head: bytes, pages: Pages) -> bytes:
    match head.partition(b"\r\n")[0].decode("latin-1").split(" "):
        case ["GET" | "HEAD" as method, target, "HTTP/1.0" | "HTTP/1.1"]:
            path, _, query = target.partition("?")
            return _written(pages(path, query), with_body=method == "GET")
        case [_, _, "HTTP/1.0" | "HTTP/1.1"]:
            return _written(Page(405, b"GET only\n"))
        case _:
            return _written(Page(400, b"not HTTP/1.1\n"))


def _written(page: Page, *, with_body: bool = True) -> bytes:
    lines = (
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
        f"content-type: {page.content_type}",
        f"content-length: {len(page.body)}",
        "connection: close\r\n\r\n",
    )
    return "\r\n".join(lines).encode() + (page.body if with_body else b"")
