"""What goes to the socket, and when."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from extender.web.listener import Listener, OneWrite, bound
from tests.extender.polling import until

HEAD, BODY = b"HTTP/1.1 200 OK\r\n\r\n", b"{}"


class Transport:
    """Remembers what was written to it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Take a piece."""
        self.written.append(data)

    def close(self) -> None:
        """Take no more."""
        self.written.append(b"closed")

    def is_closing(self) -> bool:
        """Say so."""
        return b"closed" in self.written


@pytest.fixture
async def transport() -> Transport:
    """Give a transport in a running loop."""
    return Transport()


def joined(transport: Any) -> OneWrite:
    """Return what writes to it."""
    return OneWrite(transport, asyncio.get_running_loop())


async def test_an_answer_is_one_write(transport: Transport) -> None:
    """Head and body are one system call, and each answer has its own."""
    answers = joined(transport)
    for _ in range(2):
        answers.write(HEAD)
        answers.write(BODY)
    await asyncio.sleep(0)
    assert transport.written == [HEAD + BODY] * 2


async def test_a_head_without_a_body_does_not_wait_for_one(transport: Transport) -> None:
    """An answer to HEAD has none, and a long one comes in pieces."""
    answers = joined(transport)
    answers.write(HEAD)
    assert transport.written == []
    await asyncio.sleep(0)
    assert transport.written == [HEAD]
    answers.write(BODY)
    assert transport.written == [HEAD, BODY]


async def test_nothing_is_lost_where_the_connection_is_closed(transport: Transport) -> None:
    """What was written before is sent before."""
    answers = joined(transport)
    answers.write(HEAD)
    answers.close()
    await asyncio.sleep(0)
    assert transport.written == [HEAD, b"closed"]
    assert answers.is_closing()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_all_addresses_are_those_of_both_families(host: str) -> None:
    """A kubelet that probes by IPv4 reaches a listener on `::`."""
    with bound("::", 0) as listener:
        socket.create_connection((host, listener.getsockname()[1]), timeout=60).close()


async def test_connections_beyond_the_limit_are_hung_up_on() -> None:
    """Those that are there stay, and one that leaves makes room."""
    opened = bound("127.0.0.1", 0)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response("here")(scope, receive, send)

    def is_answered(peer: socket.socket) -> bool:
        with contextlib.suppress(ConnectionError):
            peer.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            return peer.recv(1 << 16).endswith(b"here")
        return False

    def connect() -> socket.socket:
        return stack.enter_context(socket.create_connection(opened.getsockname(), timeout=60))

    listener = Listener(app, opened, receive_seconds=10.0, max_connections=2)
    serving = asyncio.create_task(listener.serve())
    with contextlib.ExitStack() as stack:
        first, second, third = [connect() for _ in range(3)]
        answers = [await asyncio.to_thread(is_answered, peer) for peer in (first, second, third)]
        assert answers == [True, True, False]
        first.close()
        await until(lambda: len(listener.server_state.connections) < 2)
        assert await asyncio.to_thread(is_answered, connect())
    listener.should_exit = True
    await serving
