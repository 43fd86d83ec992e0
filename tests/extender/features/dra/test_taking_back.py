"""The replica that plans takes back what nobody has reserved, and counts what kube-scheduler has deallocated."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random

from extender.binding.intents import AllocateClaim, Intent, NoAnswer, Refused, Reply
from extender.features.dra.allocations import AllocationOutcome
from tests.extender.features.dra.claim_site import CLAIMS, DEADLINE_SECONDS, ClaimSite

REFUSED = Refused(403, "a policy forbids it")


def allocated_late() -> ClaimSite:
    """Return a site where kube-scheduler has not reserved an allocation by the deadline."""
    site = ClaimSite(1, Random(0))
    site.schedules = False
    site.create("a", 8)
    asyncio.run(site.tick())
    assert site.allocations()
    asyncio.run(site.planner.dra.take_back_unreserved())
    site.planner.replica.seconds += DEADLINE_SECONDS
    return site


def answer_take_backs(site: ClaimSite, reply: Reply) -> list[float]:
    """Answer all writes that take an allocation back so; returns the times of those, which grows."""
    times = list[float]()

    def answered(intent: Intent) -> Reply | None:
        if not isinstance(intent, AllocateClaim) or intent.allocation is not None:
            return None
        times.append(site.planner.replica.seconds)
        return reply

    site.answer = answered
    return times


def deallocate(site: ClaimSite) -> None:
    """Let kube-scheduler take the allocation back."""
    site.world.patch(CLAIMS, "a-c0", {"status": {"allocation": None}}, "status")
    site.planner.catch_up()


def test_a_take_back_that_fails_is_tried_less_and_less_often() -> None:
    """A right may be missing for days; each refusal is counted and logged."""
    site = allocated_late()
    times = answer_take_backs(site, REFUSED)
    for _ in range(100):
        asyncio.run(site.planner.dra.take_back_unreserved())
        site.planner.replica.seconds += 1.0
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert 4 <= len(times) <= 8
    assert pauses == sorted(pauses) and pauses[-1] > pauses[0]
    assert site.planner.counted(AllocationOutcome.REFUSED) == len(times)


def test_a_deallocation_after_a_refused_take_back_is_kube_schedulers() -> None:
    """It was not ours, since nothing was written."""
    site = allocated_late()
    answer_take_backs(site, REFUSED)
    asyncio.run(site.planner.dra.take_back_unreserved())
    deallocate(site)
    assert site.planner.counted(AllocationOutcome.UNDONE) == 1


def test_a_take_back_without_an_answer_may_be_ours() -> None:
    """The watch shows that the version that we wrote to was deallocated."""
    site = allocated_late()
    answer_take_backs(site, NoAnswer("time-out"))
    asyncio.run(site.planner.dra.take_back_unreserved())
    deallocate(site)
    assert site.planner.counted(AllocationOutcome.UNDONE) == 0


def test_only_the_replica_that_plans_takes_back_and_counts() -> None:
    """Otherwise each replica would do it, and count each deallocation."""
    site = allocated_late()
    site.planner.openings.are_here = lambda: False
    before = len(site.world.intents)
    asyncio.run(site.planner.dra.take_back_unreserved())
    assert site.world.intents[before:] == []
    deallocate(site)
    assert site.planner.counted(AllocationOutcome.UNDONE) == 0
