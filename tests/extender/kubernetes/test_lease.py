"""One of several replicas holds a Lease. Another one takes it when it has expired, and never before the holder has stopped."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from benchmarks.simulated.double.api import HttpRequest, Reply, answer
from benchmarks.simulated.double.resources import LEASES, NAMESPACES, Object
from benchmarks.simulated.double.store import ObjectStore
from extender.kit.clock import Instant
from extender.kubernetes.lease import (
    ACTS_FOR_SECONDS,
    DURATION_SECONDS,
    LONGEST_SECONDS,
    RENEW_SECONDS,
    Leadership,
    LeaseRefused,
)
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request

NAMESPACE, NAME = "gputopo-system", "queue"


class Replicas:
    """Two replicas of one extender. The API server may be away for one of them."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.cut_off: set[str] = set()
        self.store = ObjectStore()
        self.store.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        self.first, self.second = self.replica("first"), self.replica("second")

    def replica(self, identity: str) -> Leadership:
        """Return a replica that has just started."""

        async def send(request: Request) -> tuple[int, bytes]:
            if identity in self.cut_off:
                raise Unavailable("cut off")
            url = urlsplit(request.path)
            asked = HttpRequest(
                request.method, url.path, dict(parse_qsl(url.query)), request.content_type, request.body or b""
            )
            reply = answer(self.store, asked)
            assert isinstance(reply, Reply)
            return reply.code, msgspec.json.encode(reply.body)

        return Leadership(
            send, lambda: Instant(self.seconds, 1_800_000_000.0 + self.seconds), NAMESPACE, NAME, identity
        )

    async def run(self, seconds: float) -> list[str]:
        """Let time pass; returns who acted, in order, and `nobody` where none did."""
        acted = list[str]()
        for _ in range(round(seconds / RENEW_SECONDS)):
            for replica in (self.first, self.second):
                await replica.renew()
            for _ in range(3):
                holders = [replica.identity for replica in (self.first, self.second) if replica.is_held]
                assert len(holders) <= 1, "two replicas act"
                acted += [now for now in (holders or ["nobody"]) if acted[-1:] != [now]]
                self.seconds += RENEW_SECONDS / 3
        return acted

    def lease(self) -> Object:
        """Return the Lease as the API server has it."""
        return self.store.get(LEASES, NAMESPACE, NAME)


async def test_the_first_replica_keeps_the_lease() -> None:
    """However long the other one waits for it."""
    replicas = Replicas()
    assert await replicas.run(10 * DURATION_SECONDS) == ["first"]
    spec = replicas.lease()["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("first", DURATION_SECONDS)


async def test_another_replica_takes_a_lease_that_has_expired() -> None:
    """The holder stops before that, for it cannot renew its Lease."""
    replicas = Replicas()
    await replicas.run(DURATION_SECONDS)
    replicas.cut_off.add("first")
    assert await replicas.run(3 * DURATION_SECONDS) == ["first", "nobody", "second"]
    assert replicas.lease()["spec"]["leaseTransitions"] == 1
    replicas.cut_off.clear()
    assert await replicas.run(3 * DURATION_SECONDS) == ["second"]


async def test_a_short_outage_changes_nothing() -> None:
    """One renewal may fail, and the next one is in time."""
    replicas = Replicas()
    await replicas.run(DURATION_SECONDS)
    replicas.cut_off |= {"first", "second"}
    assert await replicas.run(ACTS_FOR_SECONDS - 2 * RENEW_SECONDS) == ["first"]
    replicas.cut_off.clear()
    assert await replicas.run(DURATION_SECONDS) == ["first"]


async def test_a_replica_that_was_started_again_goes_on_at_once() -> None:
    """The Lease has its name."""
    replicas = Replicas()
    await replicas.run(DURATION_SECONDS)
    replicas.first = replicas.replica("first")
    assert await replicas.run(DURATION_SECONDS) == ["first"]


async def test_of_two_that_take_a_lease_at_once_one_gets_it() -> None:
    """The write names the version that was read."""
    replicas = Replicas()
    await replicas.first.renew()
    lease = await replicas.second._read()
    replicas.seconds += RENEW_SECONDS
    await replicas.first.renew()
    assert not await replicas.second._write(lease, replicas.second.clock())


async def test_of_two_that_create_a_lease_at_once_one_gets_it() -> None:
    """The other one finds it there."""
    replicas = Replicas()
    await replicas.first.renew()
    assert not await replicas.second._write(None, replicas.second.clock())


@pytest.mark.parametrize("duration", [10**9, 0, None])
async def test_a_strange_duration_keeps_nobody_away_for_long(duration: int | None) -> None:
    """Whoever may write Leases may write any number."""
    replicas = Replicas()
    spec = {"holderIdentity": "stranger", "leaseDurationSeconds": duration}
    replicas.store.create(LEASES, NAMESPACE, {"metadata": {"name": NAME}, "spec": spec})
    assert (await replicas.run(LONGEST_SECONDS + DURATION_SECONDS))[-1] == "first"


async def test_a_missing_right_is_an_error() -> None:
    """Nobody acts then; the log of the round has the reason."""

    async def send(request: Request) -> tuple[int, bytes]:
        return 403, b"{}"

    replica = Leadership(send, lambda: Instant(0.0, 0.0), NAMESPACE, NAME, "first")
    with pytest.raises(LeaseRefused, match="Lease gputopo-system/queue: HTTP 403"):
        await replica.renew()
    assert not replica.is_held
