"""One planner allocates for a pod while another one takes its GPUs back and gives them to the next pod, in every order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import combinations_with_replacement
from random import Random

import pytest

from benchmarks.simulated.double.resources import PODS
from extender.binding.driver import Driver
from extender.binding.intents import (
    AllocateClaim,
    Conflict,
    Done,
    FencePod,
    GetClaim,
    GetPodVersion,
    Intent,
    MarkClaim,
    Reply,
)
from extender.binding.planned_claims import PlannedPod, claim_planned, take_claims_back
from extender.cluster.candidates.holds import Held
from tests.extender.features.dra.claim_site import ClaimSite, Planner
from tests.extender.world import drive

ALL_GPUS = (1 << 8) - 1
GIVEN_TWICE = "is given to a-c0 and b-c0|is given to b-c0 and a-c0"
FENCE, TAKE_BACK, SWAP, CLAIM, END = 0, 1, 2, 3, 7
ORDERS = [*combinations_with_replacement((FENCE, TAKE_BACK, SWAP, CLAIM, END), 3)]
"""Before which request of the second planner each of the first planner's three arrives."""


class FencesLast(Driver):
    """Takes back what rests on a pod's claims before it fences the pod."""

    async def _do(self, intent: Intent, deadline: float) -> Reply:
        if isinstance(intent, FencePod):
            for take_back in self.after_fence:
                await self.drive(take_back(intent.known), deadline)
        return await self.execute(intent, 1.0)


class Race:
    """Pods `a` and `b` both need all GPUs of a node; the ledger names them for `a`, for which nothing is allocated yet."""

    def __init__(self) -> None:
        self.site = ClaimSite(1, Random(0))
        self.site.create("a", 8)
        self.site.dies_at = MarkClaim
        asyncio.run(self.site.tick())
        self.site.world.late.clear()
        self.site.create("b", 8)
        self.a, self.b = self.site.pod("a"), self.site.pod("b")
        self.first, self.second = Planner(self.site), Planner(self.site)

    def run(self, order: tuple[int, ...], driver: type[Driver] = Driver, *, is_blind: bool = False) -> None:
        """Let both planners work; no device is ever in two claims. A blind one does not see that a pod was fenced."""
        allocation = self._allocate_to_a(is_blind=is_blind)
        done = 0

        async def execute(intent: Intent, seconds: float) -> Reply:
            nonlocal done
            for _ in range(order.count(done)):
                next(allocation, None)
            done += 1
            return await self.site.execute(intent, seconds)

        asyncio.run(self._give_to_b(driver(execute, self.second.replica.clock, 10.0, self.second.driver.after_fence)))
        for _ in allocation:
            pass

    async def _give_to_b(self, driver: Driver) -> None:
        """Take the GPUs back and, if that is done, claim and allocate them; the watch of claims is behind."""
        state, uid = self.second.state, self.b.metadata.uid
        if await driver.drive(take_claims_back(state, [self.a.metadata.uid]), 1e9):
            b = state.pods.get(uid)
            assert b is not None and b.claimed is not None and b.claimed.request is not None
            planned = PlannedPod(uid, b.claimed.request.request, Held(ALL_GPUS))
            await driver.drive(claim_planned(state, "n0", [planned]), 1e9)
            await driver.drive(self.second.dra.allocations.do(b, "n0"), 1e9)

    def _allocate_to_a(self, *, is_blind: bool) -> Iterator[None]:
        """Hear of the claim, not of its pod, and then make one request at a time."""
        self.first.hear_of_claims()
        pod = self.first.state.pods.get(self.a.metadata.uid)
        assert pod is not None
        steps = self.first.dra.allocations.do(pod, "n0")
        intent = next(steps, None)
        while intent is not None:
            is_hidden = is_blind and isinstance(intent, GetPodVersion)
            reply = Done(self.a) if is_hidden else self.site.world.execute(intent)
            try:
                intent = steps.send(reply)
            except StopIteration:
                return
            yield


@pytest.mark.slow
def test_in_no_order_a_device_is_given_twice() -> None:
    """Each order ends with the devices in one claim at most, and the ledger names its pod; in some it is either pod's."""
    owners = set[str]()
    for order in ORDERS:
        race = Race()
        race.run(order)
        owners |= race.site.allocations().keys()
    assert owners == {"b-c0"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "is_blind"), [(FencesLast, False), (Driver, True)], ids=["fences last", "does not look at the pod"]
)
def test_in_some_order_a_device_would_be_given_twice(driver: type[Driver], is_blind: bool) -> None:
    """If claims were taken back before the fence, or allocated without a look at the pod after their version was known."""

    def run_all() -> None:
        for order in ORDERS:
            race = Race()
            race.site.checks_ledgers = False
            race.run(order, driver, is_blind=is_blind)

    with pytest.raises(AssertionError, match=GIVEN_TWICE):
        run_all()


def test_a_claim_that_the_watch_does_not_show_yet_is_taken_back_by_name() -> None:
    """Another planner may have heard of it, and be about to allocate it."""
    site = ClaimSite(1, Random(0))
    site.create("a", 4)
    site.dies_at = AllocateClaim
    asyncio.run(site.tick())
    (late,) = site.world.late
    site.planner.state.claims.replaced([])
    before = len(site.world.intents)
    assert drive(site.planner.dra.allocations.withdraw(site.pod("a")), site.world.execute)
    assert [type(intent) for intent in site.world.intents[before:]] == [GetClaim, MarkClaim]
    assert isinstance(site.world.execute(late), Conflict)


def test_a_claim_of_that_name_for_another_pod_is_left_alone() -> None:
    """A stranger's pod may name the claim of another pod."""
    site = ClaimSite(1, Random(0))
    site.create("a", 4)
    site.create("stranger", 4)
    site.planner.state.claims.replaced([])
    names = {"status": {"resourceClaimStatuses": [{"name": "c0", "resourceClaimName": "a-c0"}]}}
    site.world.patch(PODS, "stranger", names, "status")
    before = len(site.world.intents)
    assert drive(site.planner.dra.allocations.withdraw(site.pod("stranger")), site.world.execute)
    assert [type(intent) for intent in site.world.intents[before:]] == [GetClaim]
