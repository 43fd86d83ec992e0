"""Contract with the API: how one of several replicas gets and keeps a Lease."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import msgspec

from benchmarks.processes.client import ApiClient
from extender.kit.clock import Instant
from extender.kubernetes.lease import ACTS_FOR_SECONDS, DURATION_SECONDS, RENEW_SECONDS, Leadership
from extender.kubernetes.rest import Request

NAME = "queue"


class Replicas:
    """Two replicas that want one Lease."""

    def __init__(self, api: ApiClient, pods: str) -> None:
        self.seconds = 0.0
        self._api, self._namespace = api, pods.split("/")[-2]
        self.first, self.second = self._replica("first"), self._replica("second")

    def _replica(self, identity: str) -> Leadership:
        return Leadership(self._send, self.clock, self._namespace, NAME, identity)

    def clock(self) -> Instant:
        return Instant(self.seconds, 1_800_000_000.0 + self.seconds)

    async def _send(self, request: Request) -> tuple[int, bytes]:
        url, body = urlsplit(request.path), msgspec.json.decode(request.body) if request.body else None
        query = dict(parse_qsl(url.query))
        reply = await self._api.call(request.method, url.path, body, content_type=request.content_type, **query)
        return reply.code, msgspec.json.encode(reply.body)


async def test_a_lease_is_created_and_renewed(api: ApiClient, pods: str) -> None:
    """Each renewal is a new version, from which others see that the holder lives."""
    replicas = Replicas(api, pods)
    await replicas.first.renew()
    path = pods.replace("/api/v1", "/apis/coordination.k8s.io/v1").replace("/pods", f"/leases/{NAME}")
    made = (await api.call("GET", path)).ok()
    replicas.seconds += RENEW_SECONDS
    await replicas.first.renew()
    now = (await api.call("GET", path)).ok()
    assert now["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    assert now["spec"] == made["spec"] | {"renewTime": "2027-01-15T08:00:03.000000Z"}
    assert (made["spec"]["holderIdentity"], made["spec"]["leaseDurationSeconds"]) == ("first", DURATION_SECONDS)


async def test_a_lease_passes_to_another_replica_when_it_has_expired(api: ApiClient, pods: str) -> None:
    """Not before, and then the first one does not get it back."""
    replicas = Replicas(api, pods)
    await replicas.first.renew()
    await replicas.second.renew()
    assert (replicas.first.is_held, replicas.second.is_held) == (True, False)
    replicas.seconds += DURATION_SECONDS
    await replicas.second.renew()
    await replicas.first.renew()
    assert (replicas.first.is_held, replicas.second.is_held) == (False, True)


async def test_of_two_that_write_at_once_one_gets_the_lease(api: ApiClient, pods: str) -> None:
    """Whether it is there or not: the other one is refused with 409."""
    replicas = Replicas(api, pods)
    assert await replicas.first._write(None, replicas.clock())
    assert not await replicas.second._write(None, replicas.clock())
    lease = await replicas.second._read()
    replicas.seconds += ACTS_FOR_SECONDS
    assert await replicas.first._write(lease, replicas.clock())
    assert not await replicas.second._write(lease, replicas.clock())
