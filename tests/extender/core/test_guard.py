"""Whether the admission policies are in force is tried, on any node, without consequence and without believing too much."""

from __future__ import annotations

import pytest

from extender.core.policies import Guard, forbidden_write, verdict
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from topology.annotations import keys

REFUSAL = b"nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'gputopo-extender-ledger' denied request"


class ApiServer:
    """Gives the same answer to everything."""

    def __init__(self, status: int = 0, body: bytes = b"") -> None:
        self.asked: list[Request] = []
        self.answer = (status, body)

    async def send(self, request: Request) -> tuple[int, bytes]:
        self.asked.append(request)
        if not self.answer[0]:
            raise Unavailable("nobody there")
        return self.answer


@pytest.mark.parametrize(
    ("status", "body", "in_force"),
    [
        (403, REFUSAL, True),
        (200, b"{}", False),
        (403, b'nodes "n1" is forbidden: User "x" cannot patch resource "nodes"', None),
        (404, b"", None),
        (500, REFUSAL, None),
    ],
)
def test_only_a_refusal_by_a_policy_proves_it(status: int, body: bytes, in_force: bool | None) -> None:
    """A missing right, a missing node and a broken server say nothing."""
    assert verdict(status, body) is in_force


def test_try_is_a_dry_run_on_what_is_the_agents() -> None:
    """The write that is forbidden to the extender, and that changes nothing where it is not."""
    request = forbidden_write("a/b")
    assert request.path.startswith("/api/v1/nodes/a%2Fb?dryRun=All&")
    assert keys.STATUS.encode() in (request.body or b"")


async def test_what_is_known_stays_until_an_answer_says_otherwise() -> None:
    """An outage is no reason to forget."""
    api = ApiServer(403, REFUSAL)
    guard = Guard(api.send, ["n1"])
    await guard.check()
    assert guard.in_force is True
    api.answer = (0, b"")
    await guard.check()
    assert guard.in_force is True
    api.answer = (200, b"{}")
    await guard.check()
    assert guard.in_force is False


async def test_without_nodes_nothing_is_asked() -> None:
    """There is nothing to write to, and nothing to guard."""
    api = ApiServer(200)
    guard = Guard(api.send, [])
    await guard.check()
    assert (guard.in_force, api.asked) == (None, [])
