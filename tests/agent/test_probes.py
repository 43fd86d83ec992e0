"""Probes and scrapes are answered on whatever address a pod has."""

from __future__ import annotations

import http.client
import socket
import time
from contextlib import closing

import pytest

from agent.probes import Probes, announced
from tests.extender.polling import until


def ask(host: str, path: str, *, well: bool = True) -> tuple[int, bytes]:
    """Return status and body of one GET."""
    with closing(Probes(host, 0, {"/livez": lambda: well}, lambda: b"gpus 8\n")) as probes:
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


def test_says_by_its_status_what_the_check_says() -> None:
    """The kubelet looks at the status alone; a query changes nothing."""
    assert ask("127.0.0.1", "/livez?verbose")[0] == 200
    assert ask("127.0.0.1", "/livez", well=False)[0] == 503


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
