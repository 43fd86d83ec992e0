"""The double behind HTTP: `ApiServer` serves one `ObjectStore` on loopback, watches as streams of JSON lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
from aiohttp import web

from benchmarks.simulated.double.api import HttpRequest, Reply, Stream, TextBody, answer
from benchmarks.simulated.double.status import StatusError
from benchmarks.simulated.double.store import ObjectStore

_MAX_BODY_BYTES = 3 << 20
"""As the real server takes them."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class FaultInjector(Protocol):
    """What may go wrong between a client and the store; `Faultless` is the rule."""

    async def exchange(self, request: web.BaseRequest, handler: Handler) -> web.StreamResponse:
        """Answer one request, with or without `handler`, at any time, as often as wanted."""

    def stream(self, request: web.BaseRequest, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Return the lines of a watch as the client shall see them."""


class Faultless:
    """Everything arrives, once and in order."""

    async def exchange(self, request: web.BaseRequest, handler: Handler) -> web.StreamResponse:
        """Answer as the store says."""
        return await handler(request)

    def stream(self, request: web.BaseRequest, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Return the lines as they are."""
        return lines


class ApiServer:
    """A store that listens on loopback for as long as the context is open."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        port: int = 0,
        faults: FaultInjector | None = None,
        bookmark_seconds: float = 60.0,
    ) -> None:
        """Serve `store` on `port` (0: any free one); a quiet watch gets a bookmark every `bookmark_seconds`."""
        self.store = store
        self._port = port
        self._faults = faults or Faultless()
        self._bookmark_seconds = bookmark_seconds
        listener = web.Server(self._exchange, request_factory=_request, access_log=None)
        self._runner = web.ServerRunner(listener, shutdown_timeout=0.1)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _exchange(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._faults.exchange(request, self._serve)

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        request = HttpRequest(http.method, http.path, http.query, http.content_type, await http.read())
        match answer(self.store, request):
            case Reply(code, body):
                return web.Response(status=code, body=_encode(body), content_type="application/json")
            case TextBody(text):
                return web.Response(text=text)
            case Stream() as stream:
                return await self._send(http, stream)

    async def _send(self, http: web.BaseRequest, stream: Stream) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        with suppress(ConnectionResetError):  # who watched has gone
            async with aclosing(self._lines(stream)) as told:
                async for lines in self._faults.stream(http, told):
                    await response.write(lines)
        return response

    async def _lines(self, stream: Stream) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch until its time is over, all that are ready at once."""
        written = asyncio.Event()
        unsubscribe = self.store.subscribe(written.set)
        clock = asyncio.get_running_loop().time
        end = clock() + stream.timeout_seconds
        # A watch that begins with what is there says so with a bookmark; other bookmarks come with time.
        bookmark_at = clock() + (self._bookmark_seconds if stream.watch.resource_version else 0)
        try:
            while True:
                written.clear()
                told = list(stream.watch.poll())
                now = clock()
                if stream.bookmarks and now >= min(bookmark_at, end):
                    bookmark_at = now + self._bookmark_seconds
                    told += stream.watch.bookmark()
                if told:
                    yield b"".join(_line(kind, item) for kind, item in told)
                if now >= end:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(bookmark_at, end) - now):
                        await written.wait()
        except StatusError as error:
            yield _line("ERROR", error.status)
        finally:
            unsubscribe()


def _line(kind: str, item: dict[str, Any]) -> bytes:
    return _encode({"type": kind, "object": item}) + b"\n"


def _encode(document: Any) -> bytes:
    """Write JSON as Go does: what HTML has a meaning for is six bytes long."""
    text = msgspec.json.encode(document)
    return text.replace(b"<", rb"\u003c").replace(b">", rb"\u003e").replace(b"&", rb"\u0026")


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """Make what the HTTP library has read a request, with a body as large as it may be."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY_BYTES)
