"""Of several replicas the one that holds the Lease plans. The others hold nothing."""

from __future__ import annotations

from random import Random

import msgspec

from extender.kubernetes.lease import Leadership
from extender.kubernetes.rest import Request
from tests.extender.features.queue.site import Site


class Lease:
    """A Lease whose holder a test chooses."""

    def __init__(self, site: Site) -> None:
        self.holder = "other"
        self._leadership = Leadership(self._send, site.replica.clock, "gputopo-system", "queue", "this")
        site.queue.leadership = self._leadership

    async def pass_to(self, holder: str) -> None:
        """Let the replica see who holds it now."""
        self.holder = holder
        await self._leadership.renew()

    async def _send(self, request: Request) -> tuple[int, bytes]:
        return 200, msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": self.holder}})


async def test_only_the_holder_of_the_lease_plans() -> None:
    """A replica begins when the Lease passes to it."""
    site = Site(1, 3, Random(0))
    lease = Lease(site)
    site.create("gang", [2, 2])
    await lease.pass_to("other")
    await site.tick()
    assert site.waiting() == {"gang"}
    assert {row.reason for row in site.queue.report().rows} == {"standing-by"}
    assert "queue_silence_seconds" not in site.queue.figures()
    await lease.pass_to("this")
    await site.tick()
    assert site.bound() == {"gang"}


async def test_a_replica_that_has_lost_the_lease_holds_no_gpus() -> None:
    """Its plans are the next holder's to carry on or to make again."""
    site = Site(1, 3, Random(0))
    lease = Lease(site)
    await lease.pass_to("this")
    site.create("gang", [2, 2])
    await site.tick(binds=0.0)
    held = site.replica.state.holds
    assert held.places(site.seconds)
    await lease.pass_to("other")
    await site.queue.round()
    assert not held.places(site.seconds)
    assert not len(site.queue.started)
