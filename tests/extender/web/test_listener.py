"""What goes to the socket, and when."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from extender.web.listener import OneWrite, bound

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
