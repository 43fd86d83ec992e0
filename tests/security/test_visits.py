"""How strangers at a port of probes are bounded, in agent and extender alike; on loopback, in virtual time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from extender.kit.visits import ARRIVALS, MAX_HEAD_BYTES, VISITORS, Page, Visits

SECONDS = 10.0
LARGE = b"x" * (64 << 20)
PROBE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


class Port:
    """A port with some pages, and callers that it gives up on when they are closed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024))
        self.asked: list[str] = []
        self.visits = Visits(self._listening, self._page, SECONDS)
        stack.callback(self.visits.close)

    def caller(self, says: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
        """Connect from an address of loopback and say something."""
        connection = self._stack.enter_context(
            socket.create_connection(self._listening.getsockname(), 10, source_address=(address, 0))
        )
        connection.sendall(says)
        return connection

    def rounds(self, count: int = 3, now: float = 0.0) -> None:
        """Let some rounds pass at one moment."""
        for _ in range(count):
            self.visits.serve_round(now)

    def _page(self, path: str, query: str) -> Page:
        self.asked.append(f"{path}?{query}")
        return Page(200, LARGE if path == "/large" else b"ok")


@pytest.fixture
def port() -> Iterator[Port]:
    with ExitStack() as stack:
        yield Port(stack)


def heard(connection: socket.socket) -> bytes:
    """Return all that a caller is told until the port hangs up."""
    with closing(connection), connection.makefile("rb") as stream:
        return stream.read()


def is_cut(connection: socket.socket) -> bool:
    """Whether the port has hung up on a caller that it told nothing."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_a_request_is_answered_and_the_connection_ends(port: Port) -> None:
    """In as many pieces as it comes; a second one on the same connection is not read."""
    caller = port.caller(PROBE[:7])
    port.rounds()
    caller.sendall(PROBE[7:] + PROBE)
    port.rounds()
    assert heard(caller).endswith(b"content-length: 2\r\nconnection: close\r\n\r\nok")
    assert port.asked == ["/livez?"]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"HEAD /livez?verbose HTTP/1.0\r\n\r\n", 200),
        (b"POST /livez HTTP/1.1\r\n\r\n", 405),
        (b"GET /livez\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES, 431),
    ],
)
def test_anything_but_a_get_is_told_so(port: Port, said: bytes, status: int) -> None:
    """Also TLS, and heads without an end; HEAD is a GET without a body."""
    caller = port.caller(said)
    port.rounds()
    head, _, body = heard(caller).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert (body == b"") == (status == 200)


@pytest.mark.parametrize("said", [b"", b"GET /livez HTTP/1.1\r\nX: ", b"GET /large HTTP/1.1\r\n\r\n", PROBE])
def test_nobody_stays_beyond_the_deadline(port: Port, said: bytes) -> None:
    """Not those who say nothing, say it slowly, do not read, or do not hang up, whatever they send in between."""
    caller = port.caller(said)
    port.rounds()
    for second in range(int(SECONDS)):
        assert len(port.visits) == 1
        caller.send(b"x")
        port.rounds(now=float(second))
    port.rounds(now=SECONDS)
    assert len(port.visits) == 0


def test_a_probe_gets_through_a_crowd_that_holds_all_places(port: Port) -> None:
    """Slow callers of one address make room for each other, and not at the expense of somebody else."""
    quiet = port.caller(address="127.0.0.2")
    slow = [port.caller(b"G") for _ in range(200)]
    port.rounds(200 // ARRIVALS + 1)
    assert len(port.visits) == VISITORS
    assert [is_cut(caller) for caller in slow] == [True] * (201 - VISITORS) + [False] * (VISITORS - 1)
    quiet.sendall(PROBE)
    port.rounds()
    assert heard(quiet).endswith(b"ok")


def test_a_round_is_bounded_however_many_come(port: Port) -> None:
    """So many are let in in one round, and so many answers are made."""
    for _ in range(300):
        port.caller(PROBE)
    for number in range(1, 11):
        port.rounds(1)
        assert len(port.asked) == number * ARRIVALS


@pytest.mark.slow
def test_whoever_reads_slowly_gets_the_whole_page(port: Port) -> None:
    """As long as the deadline has not passed."""
    caller = port.caller(b"GET /large HTTP/1.1\r\n\r\n")
    caller.settimeout(0.01)
    received = 0
    while received < len(LARGE):
        port.rounds(1)
        try:
            received += len(caller.recv(1 << 22))
        except TimeoutError:
            continue
    assert received >= len(LARGE)


def test_who_has_gone_is_forgotten(port: Port) -> None:
    """Before asking, or after."""
    for said in (b"", b"GET", PROBE):
        caller = port.caller(said)
        port.rounds()
        caller.close()
        port.rounds()
        assert len(port.visits) == 0
