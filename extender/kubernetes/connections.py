"""Connections for single requests to one server: HTTP/1.1, which httptools parses, with TLS or without.

A bind is two requests. For each of them aiohttp computes four times as long, as it can do far more than is needed here. Lists and
watches are few and large, so they stay with it, and so do those who need a proxy.

A connection takes one request at a time, and another one only after a whole answer. So no request is given the answer to another,
however late that comes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

KEPT_SECONDS: Final = 15.0
"""An idle connection; servers keep theirs for longer, so none is closed while a request is on its way."""


@dataclass(frozen=True, slots=True)
class Server:
    """Whom to connect to."""

    url: str
    """With a path in front of all others, perhaps."""
    tls: ssl.SSLContext | None = None
    name: str | None = None
    """That its certificate has to be for, if that is not its host."""


@dataclass(slots=True)
class HttpResponse:
    """What came back."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    """By name in lower case."""
    body: bytes = b""


class Connections:
    """All to one server."""

    def __init__(self, limit: int, max_bytes: int) -> None:
        """Open `limit` at most; a body of more than `max_bytes` is not read."""
        self._room = asyncio.Semaphore(limit)
        self._max_bytes = max_bytes
        self._server: Server | None = None
        self._idle: list[_Connection] = []

    async def ask(
        self, server: Server, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> HttpResponse:
        """Send a request and return its answer.

        Raises `ssl.SSLError` for a server that is not to be trusted, to which nothing was sent, and another `OSError` where no
        answer can be had. Whoever is cancelled leaves a connection that nobody uses again.
        """
        url = urlsplit(server.url)
        lines = [f"{method} {url.path}{path} HTTP/1.1", f"Host: {url.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [] if body is None else [f"Content-Length: {len(body)}"]
        if any("\r" in line or "\n" in line for line in lines):
            raise OSError("a header with a line break")
        sent = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
        async with self._room:
            connection = self._kept(server) or await self._open(server)
            try:
                return await connection.ask(sent)
            finally:
                if connection.server == self._server and connection.is_open:
                    self._idle.append(connection)
                else:
                    connection.close()

    def close(self) -> None:
        """Close those that nobody uses."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _kept(self, server: Server) -> _Connection | None:
        if server != self._server:
            self.close()
            self._server = server
        since = asyncio.get_running_loop().time() - KEPT_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since > since:
                return connection
            connection.close()
        return None

    async def _open(self, server: Server) -> _Connection:
        url, loop = urlsplit(server.url), asyncio.get_running_loop()
        host, port = url.hostname or "", url.port or (443 if server.tls else 80)
        _, connection = await loop.create_connection(
            lambda: _Connection(server, self._max_bytes),
            host,
            port,
            ssl=server.tls,
            server_hostname=(server.name or host) if server.tls else None,
        )
        return connection


class _Connection(asyncio.Protocol):
    """One, with at most one request on it."""

    def __init__(self, server: Server, max_bytes: int) -> None:
        self.server = server
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._parser = HttpResponseParser(self)
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._answer = HttpResponse()
        self._chunks: list[bytes] = []
        self._bytes = 0
        self.idle_since = 0.0

    async def ask(self, sent: bytes) -> HttpResponse:
        self._waiting = self._loop.create_future()
        self._transport.write(sent)
        try:
            return await self._waiting
        finally:
            if self._waiting is not None:
                self._fail("given up")  # an answer may still come

    @property
    def is_open(self) -> bool:
        """Whether the next request may go this way."""
        return not self._transport.is_closing()

    def close(self) -> None:
        self._transport.abort()  # a farewell of TLS would outlive the event loop, and nothing is under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "the server hung up")

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self._transport.abort()  # nobody has asked
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(f"no HTTP: {error}")

    def on_message_begin(self) -> None:
        self._answer, self._chunks, self._bytes = HttpResponse(), [], 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._bytes += len(name) + len(value)
        if self._bytes > self._max_bytes:
            self._fail(f"an answer of more than {self._max_bytes} bytes")
        else:
            self._answer.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._bytes += len(body)
        if self._bytes > self._max_bytes:
            self._fail(f"an answer of more than {self._max_bytes} bytes")
        else:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return  # the answer follows
        if self._waiting is None:
            self._transport.abort()  # it is the second one
            return
        self._answer.status, self._answer.body = status, b"".join(self._chunks)
        self.idle_since = self._loop.time()
        if not self._parser.should_keep_alive():
            self._transport.close()
        if not self._waiting.done():
            self._waiting.set_result(self._answer)
        self._waiting = None

    def _fail(self, why: str) -> None:
        self._transport.abort()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(why))
        self._waiting = None
