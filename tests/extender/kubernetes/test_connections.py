"""An answer belongs to the request before it, whatever a server sends, and whoever has stopped waiting."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from extender.kubernetes import connections
from extender.kubernetes.connections import Connections, HttpResponse, Server
from tests.extender.polling import until

OK = b"HTTP/1.1 200 OK\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nok"
MAX_BYTES = 100
PATIENCE_SECONDS = 60.0
"""More than all answers of a test take: one that never comes is a failure."""


Pieces = Sequence[bytes | asyncio.Event]


class Peer:
    """A server that gives the answers in turn, whatever it is asked: each in pieces and after events; `None` hangs up."""

    def __init__(self, *answers: Pieces | None) -> None:
        self.answers = list(answers)
        self.asked: list[bytes] = []
        self.connections = self.open = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until there is nothing more to say."""
        self.connections += 1
        self.open += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0] or 0)
                self.asked.append(head + await reader.readexactly(length))
                pieces = self.answers.pop(0)
                if pieces is None:
                    break
                for piece in pieces:
                    if isinstance(piece, asyncio.Event):
                        await piece.wait()
                    else:
                        writer.write(piece)
                        await asyncio.sleep(0.01)
        writer.transport.abort()
        self.open -= 1


@asynccontextmanager
async def facing(*answers: Pieces | None, limit: int = 1) -> AsyncIterator[tuple[Peer, Connections]]:
    """Serve these answers, and give what asks for them."""
    peer = Peer(*answers)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    peer.url = "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
    asking = Connections(limit, MAX_BYTES)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield peer, asking
    finally:
        asking.close()
        server.close()
        await until(lambda: not peer.open)
        await asyncio.sleep(0)  # their transports end a moment later


async def ask(peer: Peer, asking: Connections, path: str = "/x", url: str = "") -> HttpResponse:
    return await asking.ask(Server(url or peer.url), "PATCH", path, {"Accept": "a/b"}, b"{}")


async def test_a_connection_serves_one_request_after_another() -> None:
    """The head says whom it is for, and how long the body is; a path of the server's comes first."""
    async with facing([OK], [OK]) as (peer, asking):
        assert (await ask(peer, asking)).body == b"ok"
        answer = await ask(peer, asking, url=peer.url + "/cluster")
        assert (answer.status, answer.headers[b"retry-after"], answer.body) == (200, b"7", b"ok")
    host = peer.url.removeprefix("http://").encode()
    rest = b" HTTP/1.1\r\nHost: " + host + b"\r\nAccept: a/b\r\nContent-Length: 2\r\n\r\n{}"
    assert peer.asked == [b"PATCH /x" + rest, b"PATCH /cluster/x" + rest]


@pytest.mark.parametrize(
    "pieces",
    [
        [OK],
        [OK[:5], OK[5:30], OK[30:-1], OK[-1:]],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n", b"1\r\nk\r\n0\r\n\r\n"],
        [b"HTTP/1.1 100 Continue\r\nRetry-After: 9\r\n\r\n" + OK],
        [b"HTTP/1.1 103 Early Hints\r\n\r\n", OK],
        [b"HTTP/1.1 199 Unknown\r\n\r\n" + OK],
    ],
    ids=["whole", "torn", "chunked", "after an interim answer", "long after one", "after one that nobody defined"],
)
async def test_an_answer_is_read_to_its_end_and_the_connection_kept(pieces: list[bytes]) -> None:
    """However it arrives."""
    async with facing(pieces, [OK]) as (peer, asking):
        assert (await ask(peer, asking)).body == b"ok"
        assert (await ask(peer, asking)).headers[b"retry-after"] == b"7"
    assert peer.connections == 1


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        (None, "hung up|reset"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 85\r\n\r\n" + b"x" * 85], "more than 100 bytes"),
        ([b"HTTP/1.1 204 No Content\r\nX: " + b"x" * 100 + b"\r\n\r\n"], "more than 100 bytes"),
        ([b"SSH-2.0-OpenSSH_9.9\r\n"], "no HTTP"),
    ],
    ids=["none", "one byte too long", "one byte of header too long", "of another kind"],
)
async def test_what_is_no_answer_ends_its_connection(pieces: list[bytes] | None, why: str) -> None:
    """Nothing is sent again."""
    async with facing(pieces, [OK]) as (peer, asking):
        with pytest.raises(ConnectionError, match=why):
            await ask(peer, asking)
        assert len(peer.asked) == 1
        assert (await ask(peer, asking)).body == b"ok"
    assert peer.connections == 2


@pytest.mark.parametrize("answered_before", [0, 1, 3])
async def test_nobody_is_given_the_answer_to_a_request_that_was_given_up(answered_before: int) -> None:
    """Its connection is closed, also where answers came on it before: a Binding would be believed that never happened."""
    the_next_is_sent, late = asyncio.Event(), OK.replace(b"ok", b"no")
    async with facing(*[[OK]] * answered_before, [the_next_is_sent, late], [OK]) as (peer, asking):
        for _ in range(answered_before):
            await ask(peer, asking)
        given_up = asyncio.create_task(ask(peer, asking))
        await until(lambda: len(peer.asked) > answered_before)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        following = asyncio.create_task(ask(peer, asking))
        await asyncio.sleep(0)  # it would be on its way by now if it were sent on the connection that there is
        the_next_is_sent.set()
        assert (await following).body == b"ok"
    assert peer.connections == 2


async def test_an_answer_may_be_as_long_as_is_said() -> None:
    """Each one for itself, its headers included, however many have come on the connection."""
    body_bytes = MAX_BYTES - len("Content-Length" + "84")
    longest = b"HTTP/1.1 200 OK\r\nContent-Length: 84\r\n\r\n" + b"x" * body_bytes
    async with facing([longest], [longest]) as (peer, asking):
        assert [len((await ask(peer, asking)).body) for _ in range(2)] == [body_bytes] * 2
    assert peer.connections == 1


async def test_headers_may_be_as_long_as_the_whole_answer() -> None:
    """Where there is no body."""
    async with facing([b"HTTP/1.1 204 No Content\r\nX: " + b"x" * 99 + b"\r\n\r\n"]) as (peer, asking):
        assert (await ask(peer, asking)).headers[b"x"] == b"x" * 99


async def test_the_reason_why_a_connection_was_lost_is_reported() -> None:
    """A person looks for another fault when the network resets it than when the server ends it."""

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        peer, asking = Peer(), Connections(1, MAX_BYTES)
        peer.url = "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
        with pytest.raises(ConnectionError, match="reset"):
            await ask(peer, asking)


@pytest.mark.parametrize("pieces", [[OK + OK], [OK, OK], [OK, OK[:20]]], ids=["together", "later", "half of it later"])
async def test_what_nobody_has_asked_for_ends_the_connection(pieces: list[bytes]) -> None:
    """Or the next one who asks would be given it. That is no error of the event loop's."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with facing(pieces, [OK.replace(b"ok", b"me")]) as (peer, asking):
        assert (await ask(peer, asking)).body == b"ok"
        await until(lambda: not peer.open)  # the connection is ended for it
        assert (await ask(peer, asking)).body == b"me"
    assert (peer.connections, errors) == (2, [])


async def test_a_server_that_ends_the_connection_is_asked_on_another() -> None:
    """It says so with its answer."""
    async with facing([OK.replace(b"Retry-After: 7", b"Connection: close")], [OK]) as (peer, asking):
        await ask(peer, asking)
        await ask(peer, asking)
    assert peer.connections == 2


async def test_a_connection_that_was_idle_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may be about to close it."""
    monkeypatch.setattr(connections, "KEPT_SECONDS", 0.0)
    async with facing([OK], [OK]) as (peer, asking):
        await ask(peer, asking)
        await ask(peer, asking)
    assert peer.connections == 2


async def test_no_more_connections_are_open_than_may_be() -> None:
    """Who comes then waits."""
    async with facing([OK], [OK], [OK], [OK], limit=2) as (peer, asking):
        answers = await asyncio.gather(*(ask(peer, asking) for _ in range(4)))
    assert [answer.body for answer in answers] == [b"ok"] * 4
    assert peer.connections == 2


async def test_connections_to_another_server_are_not_used() -> None:
    """Nor those to the same one as it was trusted before."""
    async with facing([OK], [OK]) as (peer, asking):
        await ask(peer, asking)
        await asking.ask(Server(peer.url, name="other"), "GET", "/", {}, None)
    assert peer.connections == 2


async def test_an_answer_of_the_former_server_keeps_no_connection_to_it() -> None:
    """Its request was under way when the server changed. The next one, with its token, is for the new server alone."""
    is_new_known = asyncio.Event()
    async with facing([is_new_known, OK], [OK]) as (former, _), facing([OK], [OK], limit=2) as (peer, asking):
        under_way = asyncio.create_task(ask(former, asking))
        await until(lambda: former.asked)
        await ask(peer, asking)
        is_new_known.set()
        assert (await under_way).body == b"ok"
        await ask(peer, asking)
        assert (len(former.asked), len(peer.asked)) == (1, 2)


@pytest.mark.parametrize(
    ("url", "name", "is_tls", "expected"),
    [
        ("http://api", None, False, ("api", 80, None)),
        ("https://api", None, True, ("api", 443, "api")),
        ("https://10.0.0.1:6443/cluster", "api", True, ("10.0.0.1", 6443, "api")),
    ],
)
async def test_a_server_is_found_by_its_address_and_known_by_its_name(
    monkeypatch: pytest.MonkeyPatch, url: str, name: str | None, *, is_tls: bool, expected: tuple[object, ...]
) -> None:
    """The port is that of the scheme, the name that of the address, unless something else is said."""
    tls, opened = ssl.create_default_context() if is_tls else None, list[tuple[object, ...]]()

    async def refuse(make: object, host: str, port: int, **how: object) -> None:
        assert how["ssl"] is tls
        opened.append((host, port, how["server_hostname"]))
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", refuse)
    with pytest.raises(ConnectionRefusedError):
        await Connections(1, MAX_BYTES).ask(Server(url, tls, name), "GET", "/", {}, None)
    assert opened == [expected]


@pytest.mark.parametrize("line_break", ["\r\n", "\n", "\r"])
async def test_a_token_with_a_line_break_is_sent_to_nobody(line_break: str) -> None:
    """It would be a header, or a request, of its own."""
    async with facing() as (peer, asking):
        with pytest.raises(OSError, match="line break"):
            await asking.ask(Server(peer.url), "GET", "/", {"Authorization": f"Bearer a{line_break}X: y"}, None)
    assert not peer.connections
