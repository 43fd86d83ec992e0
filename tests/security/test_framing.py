"""H2: what stands around a body is bounded as a whole: head, trailers, extensions and frames of chunks; on both kinds of port."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from itertools import count, repeat
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from extender.kit import visits
from extender.web.listener import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED, ImpatientProtocol, Listener, bound
from extender.web.tls import Files, Identity
from tests.security.certificates import Authority
from tests.security.target import MIB

POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS_BYTES = 64 * MIB
"""Far more than any buffer between the two ends."""


def header_lines() -> Iterator[bytes]:
    """Yield headers, or trailers, without end."""
    return (b"X-%d: %s\r\n" % (number, b"a" * 80) for number in count())


def long_line() -> Iterator[bytes]:
    """Yield one header without end."""
    yield b"X: "
    while True:
        yield b"a" * 4096


def small_chunks() -> Iterator[bytes]:
    """Yield chunks of one byte without end."""
    while True:
        yield b"1\r\nx\r\n"


def extensions() -> Iterator[bytes]:
    """Yield chunks that say more beside their body than in it."""
    while True:
        yield b"1;note=%s\r\nx\r\n" % (b"a" * 4000)


ENDLESS: dict[str, tuple[bytes, Callable[[], Iterator[bytes]]]] = {
    "a head of many lines": (POST, header_lines),
    "a head of one line": (POST, long_line),
    "a first line": (b"GET /", long_line),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", header_lines),
    "a trailer": (CHUNKED + b"0\r\n", long_line),
    "chunks of a byte": (CHUNKED, small_chunks),
    "extensions of chunks": (CHUNKED, extensions),
    "one extension": (CHUNKED + b"1;", long_line),
}


class Watched(ImpatientProtocol):
    """The product's protocol, and the most that it was ever given to parse, and kept, of one request without a body."""

    most_parsed = most_headers = most_waiting = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        Watched.most_headers = max(self.most_headers, len(self.headers))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        Watched.most_parsed = max(self.most_parsed, self._head_bytes)
        Watched.most_waiting = max(self.most_waiting, len(self.pipeline))


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of the body."""
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, int]]:
    """Run the listener of the verbs in front of `echo`."""
    Watched.most_parsed = Watched.most_headers = Watched.most_waiting = 0
    opened = bound("127.0.0.1", 0)
    listener = Listener(echo, opened, receive_seconds=60.0, tls=tls)
    listener._protocol = Watched
    serving = asyncio.create_task(listener.serve())
    try:
        yield opened.getsockname()[:2]
    finally:
        listener.should_exit = True
        await serving


async def is_cut_off(
    connect: Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]], beginning: bytes, lines: Iterator[bytes]
) -> bool:
    """Send until the connection is cut, or for longer than any buffer holds."""
    _, writer = await connect
    sent = 0
    try:
        writer.write(beginning)
        while sent < ENDLESS_BYTES:
            block = b"".join(next(lines) for _ in range(100))
            sent += len(block)
            writer.write(block)
            await writer.drain()
        return False
    except OSError:
        return True
    finally:
        writer.transport.abort()


@pytest.mark.slow
@pytest.mark.parametrize("attack", ENDLESS)
async def test_h2_what_has_no_end_and_is_no_body_is_cut_off(attack: str) -> None:
    """No more of it is parsed than a head may have, and no trailer is kept."""
    async with listening() as address:
        beginning, more = ENDLESS[attack]
        assert await is_cut_off(asyncio.open_connection(*address), beginning, more())
        assert 0 < Watched.most_parsed <= MAX_HEAD_BYTES + 4096
        assert Watched.most_headers <= MAX_HEADERS + 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
async def test_h2_behind_tls_as_well(tmp_path: Path) -> None:
    """Whoever has a certificate is cut off at the same bound."""
    authority = Authority(tmp_path, "ca")
    ours, theirs = authority.sign("ours", "/CN=extender", "serverAuth"), authority.sign("theirs", "/CN=scheduler")
    caller = ssl.create_default_context(cafile=str(authority.certificate))
    caller.load_cert_chain(theirs.certificate, theirs.key)
    tls = Identity(Files(ours.certificate, ours.key, authority.certificate)).context
    async with listening(tls) as address:
        beginning, more = ENDLESS["trailers"]
        assert await is_cut_off(asyncio.open_connection(*address, ssl=caller), beginning, more())
        assert 0 < Watched.most_parsed <= MAX_HEAD_BYTES + 4096


async def answered(address: tuple[str, int], sent: bytes) -> bytes:
    """Send bytes at once, and return what comes back until the connection ends."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    return answer


CLOSE = b"Connection: close\r\n"
HONEST = {
    "a length": POST + CLOSE + b"Content-Length: 300000\r\n\r\n" + b"x" * 300_000,
    "chunks": POST
    + CLOSE
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"7530\r\n%s\r\n" % (b"x" * 30_000) * 10
    + b"0\r\n\r\n",
    "chunks of 1 KiB": POST
    + CLOSE
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"3e8\r\n%s\r\n" % (b"x" * 1000) * 300
    + b"0\r\n\r\n",
    "a trailer": POST
    + CLOSE
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"493e0\r\n%s\r\n" % (b"x" * 300_000)
    + b"0\r\nX-Sum: 1\r\n\r\n",
    "many headers": POST
    + CLOSE
    + b"Content-Length: 300000\r\n"
    + b"X: 1\r\n" * (MAX_HEADERS - 3)
    + b"\r\n"
    + b"x" * 300_000,
    "a large head": POST + CLOSE + b"Content-Length: 300000\r\nX: " + b"a" * 60_000 + b"\r\n\r\n" + b"x" * 300_000,
}


@pytest.mark.parametrize("form", HONEST)
async def test_h2_a_body_does_not_count_as_head(form: str) -> None:
    """However it is framed, a body of several times the bound arrives whole."""
    async with listening() as address:
        assert (await answered(address, HONEST[form])).endswith(b"\r\n\r\n300000")


async def test_h2_each_request_of_a_connection_has_a_head_of_its_own() -> None:
    """A connection that is kept may bring any number of requests, one after the other."""
    request = POST + b"Content-Length: 5\r\nX: " + b"a" * 40_000 + b"\r\n\r\nhello"
    async with listening() as address:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(10):
            writer.write(request)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(1) == b"5"
        writer.close()


async def test_h2_requests_that_wait_on_one_connection_are_few() -> None:
    """A hundred thousand that arrive before the first is answered are cut off; a handful are answered in order."""
    async with listening() as address:
        some = b"".join(POST + b"Content-Length: %d\r\n\r\n%s" % (size, b"x" * size) for size in range(5))
        bodies = (await answered(address, some + POST + CLOSE + b"Content-Length: 0\r\n\r\n")).split(b"\r\n\r\n")
        assert [body[:1] for body in bodies[1:]] == [b"0", b"1", b"2", b"3", b"4", b"0"]
        requests = repeat(POST + b"Content-Length: 0\r\n\r\n")
        assert await is_cut_off(asyncio.open_connection(*address), b"", requests)
        assert MAX_PIPELINED < Watched.most_waiting < MAX_PIPELINED + 4096 // len(POST)


@pytest.mark.parametrize("attack", ENDLESS)
def test_h2_a_port_of_probes_keeps_no_more_than_a_head(attack: str) -> None:
    """Whatever is said without end, what it keeps of a caller is bounded, and the caller is told no."""
    beginning, more = ENDLESS[attack]
    with closing(socket.create_server(("127.0.0.1", 0))) as opened:
        served = visits.Visits(opened, lambda path, query: visits.Page(200, b"ok"), 60.0)
        with closing(socket.create_connection(opened.getsockname(), 10)) as caller:
            caller.sendall(beginning)
            lines, kept = more(), 0
            for _ in range(100):
                caller.setblocking(False)
                with suppress(BlockingIOError):
                    caller.send(b"".join(next(lines) for _ in range(100)))
                served.serve_round(0.0)
                kept = max(kept, *(len(visit._received) for visit in served._present))
            caller.setblocking(True)
            assert caller.recv(13) in {b"HTTP/1.1 405 ", b"HTTP/1.1 431 "}
        served.close()
    assert 0 < kept <= 2 * visits.MAX_HEAD_BYTES
