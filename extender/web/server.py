"""uvicorn as kube-scheduler needs it: patient with idle connections, impatient with slow ones, quiet, and stopped politely.

kube-scheduler keeps idle connections for 90 s and does not repeat a POST that meets one being closed, so ours last longer. A
request has to arrive whole within a deadline, headers and body; waiting for the next one is what keep-alive is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from asyncio.events import TimerHandle
from collections.abc import Callable, Iterator
from typing import Final

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from extender.config import ExtenderConfiguration
from extender.service import Extender
from extender.web import health
from extender.web.app import application, connect

KEEP_ALIVE_SECONDS: Final = 120
STOP_SECONDS: Final = 5
"""For calls that are under way: a bind needs three."""
MAX_HEAD_BYTES: Final = 64 << 10
"""Of a request's first line and headers; kube-scheduler's are a few hundred bytes. The parser itself takes any amount."""

log = structlog.get_logger(__name__)


class ImpatientProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose peer has to say what it wants within `receive_seconds`, from connecting and for each request."""

    receive_seconds = 10.0
    _expiry: TimerHandle | None = None
    _head_bytes: int | None = 0
    """What has arrived of a head that is not complete; `None` between head and end of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a first request."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._relax()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, and hang up on a head that has grown too large."""
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > MAX_HEAD_BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Expect a body, whose size is its route's business."""
        self._head_bytes = None
        super().on_headers_complete()

    def on_message_begin(self) -> None:
        """Expect the rest of a request."""
        super().on_message_begin()
        self._relax()
        self._expect()

    def on_message_complete(self) -> None:
        """Expect nothing until the next request begins."""
        self._head_bytes = 0
        self._relax()
        super().on_message_complete()

    def _expect(self) -> None:
        self._expiry = self.loop.call_later(self.receive_seconds, self.transport.abort)

    def _relax(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


def impatient(receive_seconds: float) -> type[ImpatientProtocol]:
    """Return the protocol with another deadline."""
    return type("ImpatientProtocol", (ImpatientProtocol,), {"receive_seconds": receive_seconds})


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process; there is more than one server to stop."""
        yield


async def serve(
    config: ExtenderConfiguration, stop: asyncio.Event, listening: Callable[[list[str]], None] = lambda _: None
) -> None:
    """Run until `stop` is set; `listening` is told the URLs, that of the verbs first.

    Raises `OSError` when a port cannot be had, `Unavailable` without credentials, and an `ExceptionGroup` when a part of
    the extender has died: what it was needed for must not go on without it.
    """
    with contextlib.ExitStack() as sockets:
        main = sockets.enter_context(_bind(config.listen.host, config.listen.port))
        side = None
        if config.health.port is not None:
            side = sockets.enter_context(_bind(config.health.host, config.health.port))
        async with connect(config) as api, Extender(config, api) as extender:
            app, probes = application(config), Starlette(routes=health.routes())
            app.state.extender = probes.state.extender = extender
            served = [(_server(app, config), main)]
            if side is not None:
                served.append((_server(probes, config), side))
            urls = [_url(opened) for _, opened in served]
            log.info("listening", urls=" ".join(urls), config=config.digest)
            listening(urls)
            await _run(served, extender, stop)


async def _run(served: list[tuple[_Server, socket.socket]], extender: Extender, stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        for server, opened in served:
            group.create_task(server.serve(sockets=[opened]))
        background = [group.create_task(extender.failure()), group.create_task(_settle(extender))]
        await stop.wait()
        log.info("stopping")
        for server, _ in served:
            server.should_exit = True
        for task in background:
            task.cancel()


async def _settle(extender: Extender) -> None:
    """Take what the first lists left on the heap out of the collector's sight: scanning it would cost milliseconds."""
    await extender.synced()
    gc.collect()
    gc.freeze()
    log.info("ready", nodes=len(extender.state.nodes), pods=len(extender.state.pods))


def _server(app: ASGIApp, config: ExtenderConfiguration) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http=impatient(config.limits.receive),
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


def _bind(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024)


def _url(opened: socket.socket) -> str:
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
