"""Probes and scrapes are answered on whatever address a pod has."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import ExitStack, closing

import pytest

from agent.probes import Probes, announced
from tests.extender.polling import until

UNCUT_SECONDS = 30.0
"""Before who trickles gives up: nobody has cut him."""


def ask(host: str, path: str, *, well: bool = True, listening_on: str = "") -> tuple[int, bytes]:
    """Return status and body of one GET."""
    with closing(Probes(listening_on or host, 0, {"/livez": lambda: well}, lambda: b"gpus 8\n")) as probes:
        connection = http.client.HTTPConnection(host, probes.port, timeout=60)
        with closing(connection):
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6"))],
)
def test_serves_on_both_kinds_of_address(host: str) -> None:
    """A cluster may have nothing but IPv6."""
    assert ask(host, "/metrics") == (200, b"gpus 8\n")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_all_addresses_are_those_of_both_families(host: str) -> None:
    """A kubelet that probes by IPv4 reaches a listener on `::`."""
    assert ask(host, "/metrics", listening_on="::") == (200, b"gpus 8\n")


def test_says_by_its_status_what_the_check_says() -> None:
    """The kubelet looks at the status alone; a query changes nothing."""
    assert ask("127.0.0.1", "/livez?verbose")[0] == 200
    assert ask("127.0.0.1", "/livez", well=False)[0] == 503


@pytest.mark.slow
async def test_tells_after_each_change_to_yes() -> None:
    """And not for every probe: each costs a write of the node."""
    told: list[float] = []
    answers = iter([False, True, True, False, True, True])
    check = announced(lambda: next(answers), lambda: told.append(time.monotonic()))
    began = time.monotonic()
    assert [check() for _ in range(6)] == [False, True, True, False, True, True]
    await until(lambda: len(told) == 2)
    assert min(told) - began >= 1


def test_serves_nothing_else() -> None:
    """No listing, no file."""
    assert ask("127.0.0.1", "/")[0] == 404


@pytest.mark.slow
def test_slow_callers_take_no_thread_keep_nobody_out_and_are_cut() -> None:
    """200 that say a byte a second: one thread serves them all and a probe beside, and none stays beyond the deadline."""
    with closing(Probes("127.0.0.1", 0, {"/livez": lambda: True}, lambda: b"")) as probes, ExitStack() as stack:
        threads, began = threading.active_count(), time.monotonic()
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", probes.port))) for _ in range(200)]
        most = 0
        while slow and time.monotonic() < began + UNCUT_SECONDS:
            slow = [caller for caller in slow if goes_on(caller)]
            most = max(most, threading.active_count())
            time.sleep(1)
        assert most <= threads
        assert not slow


def test_a_probe_is_answered_beside_more_slow_callers_than_have_a_place() -> None:
    """The kubelet's comes from another address, asks at once, and waits a second for its answer."""
    with closing(Probes("127.0.0.1", 0, {"/livez": lambda: True}, lambda: b"")) as probes, ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", probes.port))).send(b"G")
        assert status_of(probes) == 200


def test_metrics_are_made_once_for_a_crowd() -> None:
    """To make them takes the interpreter from those who serve the kubelet."""
    made: list[float] = []

    def make() -> bytes:
        made.append(time.monotonic())
        return b"gpus 8\n"

    with closing(Probes("127.0.0.1", 0, {}, make)) as probes:
        began = time.monotonic()
        assert [status_of(probes, "/metrics") for _ in range(50)] == [200] * 50
        assert 1 <= len(made) <= 1 + (time.monotonic() - began)


def goes_on(caller: socket.socket) -> bool:
    """Say a byte; return whether the connection still stands."""
    try:
        caller.send(b"G")
    except OSError:
        return False
    return True


def status_of(probes: Probes, path: str = "/livez") -> int:
    """Return the status of one GET on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", probes.port, timeout=60, source_address=("127.0.0.2", 0))
    with closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status
