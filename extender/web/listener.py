"""uvicorn as kube-scheduler needs it: patient with idle connections, impatient with slow ones, and quiet.

kube-scheduler keeps idle connections for 90 s and does not repeat a POST that meets one being closed, so ours last longer. A
request has to arrive whole within a deadline, headers and body; waiting for the next one is what keep-alive is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from asyncio.events import TimerHandle
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEEP_ALIVE_SECONDS: Final = 120
STOP_SECONDS: Final = 5
"""For calls that are under way: a bind needs three."""
HANDSHAKE_SECONDS: Final = 5.0
MAX_HEAD_BYTES: Final = 64 << 10
"""Of all in a request that is no body: first line, headers, what frames chunks, and trailers.

kube-scheduler sends a few hundred bytes. The parser itself takes any amount."""
MAX_HEADERS: Final = 128
"""Of one request; each costs far more memory than its bytes."""
MAX_PIPELINED: Final = 16
"""Requests that arrive on one connection before the first of them is answered; kube-scheduler sends none."""
PARSED_AT_ONCE_BYTES: Final = 4 << 10
"""As long as it is not known how many of the bytes are body."""
BACKLOG: Final = 1024
_HEAD: Final = b"HTTP/1.1 "


class OneWrite:
    """A transport that sends the head of an answer together with its body: a write to a socket costs a system call."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        """Be the transport itself in everything else."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send what came before and this; a head waits for its body, no longer than the event loop's turn takes."""
        if not self._head and data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self._send)
        else:
            self._head += data
            self._send()

    def close(self) -> None:
        """Send what is left, and close."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""


class ImpatientProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose peer has to say what it wants within `receive_seconds`, from connecting and for each request."""

    receive_seconds = 10.0
    max_connections: int | None = None
    """Of one listener; `None`: any number."""
    _expiry: TimerHandle | None = None
    _head_bytes = 0
    """What has been parsed of a request and is no body."""
    _body_bytes = 0
    """What is still to come of a body whose length was announced."""
    _has_head = False
    """Whether the headers of the request are complete; what follows in their form are trailers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a first request; hang up where there are too many connections."""
        super().connection_made(OneWrite(transport, self.loop))  # type: ignore[arg-type]
        if self.max_connections is not None and len(self.connections) > self.max_connections:
            self.transport.abort()
        else:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._relax()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, in pieces, and hang up before a head is parsed that is too large."""
        position = 0
        while position < len(data) and not self.transport.is_closing():
            piece = data[position : position + (self._body_bytes or PARSED_AT_ONCE_BYTES)]
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.abort()
                return
            self._head_bytes += len(piece)
            super().data_received(piece)
            position += len(piece)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and no trailer; hang up on a peer that sends too many."""
        if self._has_head or len(self.headers) > MAX_HEADERS:
            return
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Expect a body, whose size is its route's business; hang up on a peer that does not wait for answers."""
        self._has_head = True
        self._body_bytes = next((int(value) for name, value in self.headers if name == b"content-length"), 0)
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            self.transport.abort()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body, which is no head."""
        self._head_bytes -= len(body)
        self._body_bytes = max(0, self._body_bytes - len(body))
        super().on_body(body)

    def on_message_begin(self) -> None:
        """Expect the rest of a request."""
        self._has_head = False
        super().on_message_begin()
        self._relax()
        self._expect()

    def on_message_complete(self) -> None:
        """Expect nothing until the next request begins."""
        self._head_bytes = self._body_bytes = 0
        self._relax()
        super().on_message_complete()

    def _expect(self) -> None:
        self._expiry = self.loop.call_later(self.receive_seconds, self.transport.abort)

    def _relax(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


def impatient(receive_seconds: float, max_connections: int | None = None) -> type[ImpatientProtocol]:
    """Return the protocol with other limits."""
    limits = {"receive_seconds": receive_seconds, "max_connections": max_connections}
    return type("ImpatientProtocol", (ImpatientProtocol,), limits)


class Listener(uvicorn.Server):
    """An application on a socket that is bound already, behind TLS if a context is given."""

    def __init__(
        self,
        app: ASGIApp,
        opened: socket.socket,
        receive_seconds: float,
        tls: ssl.SSLContext | None = None,
        max_connections: int | None = None,
    ) -> None:
        self._socket = opened
        self._protocol = impatient(receive_seconds, max_connections)
        self._tls = tls
        super().__init__(
            uvicorn.Config(
                app,
                http=self._protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        return url_of(self._socket, "https" if self._tls else "http")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as uvicorn would, but with a deadline for TLS handshakes: asyncio's own is a minute."""
        loop = asyncio.get_running_loop()
        seconds = HANDSHAKE_SECONDS if self._tls else None
        server = await loop.create_server(
            partial(self._protocol, self.config, self.server_state, self.lifespan.state),
            sock=self._socket,
            backlog=BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=seconds,
            ssl_shutdown_timeout=seconds,
        )
        self.servers = [server]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process; there is more than one server to stop."""
        yield


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address of ours, `::` to all of IPv4 and IPv6; raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    opened = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    # Connections inherit it. An answer is written in two pieces, and the second must not wait for the first to be acknowledged.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def url_of(opened: socket.socket, scheme: str) -> str:
    """Return where a socket listens."""
    host, port = opened.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
