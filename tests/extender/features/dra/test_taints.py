"""What keeps kube-scheduler from devices that are about to be allocated."""

from __future__ import annotations

import math

import pytest

from extender.cluster.objects.devices import DRIVER
from extender.core.openings import Openings
from extender.features.dra.inventory import DeviceId
from extender.features.dra.taints import (
    ALLOCATED_SECONDS,
    DEVICES,
    LISTING_SECONDS,
    PATIENCE_SECONDS,
    WANTED_SECONDS,
    DeviceTaints,
)
from extender.kit.clock import Instant
from tests.extender.features.dra.taint_rules import TaintRules

GPU = DeviceId(DRIVER, "n1", "gpu-0")
OTHER = DeviceId(DRIVER, "n1", "gpu-1")


class Site:
    """One replica that plans, and the rules of its cluster."""

    def __init__(self) -> None:
        self.seconds, self.plans, self.class_uid = 0.0, True, "uid-of-the-class"
        self.rules = TaintRules()
        self.taints = self.replica()

    def replica(self) -> DeviceTaints:
        openings = Openings(are_here=lambda: self.plans)
        return DeviceTaints(self.rules.send, lambda: Instant(self.seconds, 0.0), openings, lambda: self.class_uid)

    async def after(self, seconds: float) -> None:
        self.seconds += seconds
        await self.taints.work()


@pytest.fixture
async def site() -> Site:
    """Give a replica that knows that there are rules."""
    made = Site()
    await made.taints.work()
    assert made.taints.are_served
    return made


async def test_a_device_has_a_rule_until_nobody_has_wanted_it_for_long(site: Site) -> None:
    """It is kept from when the rule was written."""
    assert site.taints.keep([GPU]) == 0.0 and site.taints.wake.is_set()
    await site.after(2.0)
    assert [*site.rules.devices.values()] == ["n1/gpu-0"]
    site.seconds += 3.0
    assert site.taints.keep([GPU]) == 3.0
    await site.after(WANTED_SECONDS - 0.1)
    assert site.taints.count == len(site.rules.devices) == 1
    await site.after(0.1)
    assert site.taints.count == len(site.rules.devices) == 0
    assert site.taints.keep([GPU]) == 0.0


async def test_an_allocated_device_has_a_rule_until_kube_scheduler_has_heard_of_that(site: Site) -> None:
    site.taints.keep([GPU, OTHER])
    await site.after(1.0)
    site.taints.allocated([GPU])
    await site.after(ALLOCATED_SECONDS - 0.1)
    assert len(site.rules.devices) == 2
    await site.after(0.1)
    assert [*site.rules.devices.values()] == ["n1/gpu-1"]


async def test_devices_are_kept_once_the_last_of_them_is(site: Site) -> None:
    site.taints.keep([GPU])
    await site.after(1.0)
    assert site.taints.keep([GPU, OTHER]) == 0.0
    await site.after(1.0)
    site.seconds += 0.5
    assert site.taints.keep([GPU, OTHER]) == 0.5


async def test_rules_go_with_our_device_class(site: Site) -> None:
    """Where that is known."""
    site.taints.keep([GPU])
    await site.after(1.0)
    assert [(owner["kind"], owner["uid"]) for owner in site.rules.owners] == [("DeviceClass", "uid-of-the-class")]
    site.class_uid = ""
    site.taints.keep([OTHER])
    await site.after(1.0)
    assert len(site.rules.devices) == 2 and site.rules.owners == []


async def test_rules_of_a_replica_that_is_gone_are_removed_at_the_second_look(site: Site) -> None:
    """Until then its last allocations may be under way. What a replica keeps itself stays."""
    site.taints.keep([GPU])
    await site.after(1.0)
    (left,) = site.rules.devices
    site.taints = site.replica()
    await site.after(1.0)
    assert left in site.rules.devices
    for _ in range(int(LISTING_SECONDS)):
        site.taints.keep([GPU])
        await site.after(1.0)
    assert left not in site.rules.devices and len(site.rules.devices) == 1


async def test_a_replica_that_does_not_plan_writes_none_and_removes_only_its_own(site: Site) -> None:
    """Another one has taken over. Its own stay as long as if it had not."""
    other = site.replica()
    await other.work()
    other.keep([GPU])
    await other.work()
    (theirs,) = site.rules.devices
    site.taints.keep([GPU])
    await site.after(1.0)
    site.plans = False
    site.taints.keep([OTHER])
    await site.after(WANTED_SECONDS - 1.1)
    assert sorted(site.rules.devices.values()) == ["n1/gpu-0", "n1/gpu-0"]
    for _ in range(3):
        await site.after(LISTING_SECONDS)
    assert [*site.rules.devices] == [theirs]


async def test_a_rule_whose_creation_was_not_answered_counts_once_it_is_seen_to_exist(site: Site) -> None:
    """The API server had written it."""
    site.rules.answers_get_lost = True
    site.taints.keep([GPU])
    await site.after(1.0)
    assert site.taints.keep([GPU]) == 0.0
    site.rules.answers_get_lost = False
    await site.after(1.0)
    site.seconds += 1.0
    assert site.taints.keep([GPU]) == 1.0 and len(site.rules.devices) == 1


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_nothing_waits_for_long_for_a_rule_that_cannot_be_had(site: Site, status: int) -> None:
    """It is tried all the time."""
    site.rules.statuses["POST"] = status
    site.taints.keep([GPU])
    await site.after(PATIENCE_SECONDS - 0.1)
    assert site.taints.keep([GPU]) == 0.0
    await site.after(0.1)
    assert site.taints.keep([GPU]) == math.inf
    site.rules.statuses.clear()
    await site.after(1.0)
    assert site.taints.keep([GPU]) == 0.0 and site.rules.devices


async def test_no_rule_is_forgotten_that_could_not_be_removed(site: Site) -> None:
    site.taints.keep([GPU])
    await site.after(1.0)
    site.rules.statuses["DELETE"] = 500
    await site.after(WANTED_SECONDS)
    assert site.taints.count == 1
    site.rules.statuses.clear()
    await site.after(1.0)
    assert site.taints.count == len(site.rules.devices) == 0


async def test_a_rule_that_somebody_has_removed_is_gone(site: Site) -> None:
    """To remove it again is no failure."""
    site.taints.keep([GPU])
    await site.after(1.0)
    site.rules.devices.clear()
    await site.after(WANTED_SECONDS)
    assert site.taints.count == 0


async def test_the_next_rule_of_a_device_has_another_name(site: Site) -> None:
    """A deletion of the last one that comes late does not remove it."""
    site.taints.keep([GPU])
    await site.after(1.0)
    before = {*site.rules.devices}
    await site.after(WANTED_SECONDS)
    site.taints.keep([GPU])
    await site.after(1.0)
    assert len(site.rules.devices) == 1 and before.isdisjoint(site.rules.devices)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", [403, 404, 422])
async def test_where_there_are_no_rules_no_device_is_kept(site: Site, method: str, status: int) -> None:
    """Before Kubernetes 1.37, or without the right; it is tried again every minute."""
    site.rules.statuses[method] = status
    await site.after(LISTING_SECONDS)
    site.taints.keep([GPU])
    await site.after(1.0)
    assert not site.taints.are_served
    assert ("POST" in site.rules.requests) == (method == "POST")
    site.rules.statuses.clear()
    await site.after(LISTING_SECONDS - 1.1)
    assert not site.taints.are_served
    await site.after(1.1)
    assert site.taints.are_served


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"items": null}'])
async def test_a_list_that_cannot_be_read_is_none(site: Site, body: bytes) -> None:
    """It is asked for again a minute later."""
    site.rules.listing = body
    await site.after(LISTING_SECONDS)
    assert not site.taints.are_served
    site.rules.listing = None
    await site.after(LISTING_SECONDS)
    assert site.taints.are_served


async def test_no_device_is_kept_before_it_is_known_whether_there_are_rules() -> None:
    """Of a replica that has just begun."""
    assert not Site().taints.are_served


async def test_an_api_server_that_is_busy_is_asked_again_soon(site: Site) -> None:
    """It knows rules all the same."""
    site.rules.statuses["GET"] = 503
    await site.after(LISTING_SECONDS)
    assert site.taints.are_served
    looks = site.rules.requests.count("GET")
    await site.after(1.0)
    assert site.rules.requests.count("GET") == looks + 1


async def test_only_so_many_devices_have_rules_and_the_others_go_without(site: Site) -> None:
    """Nobody waits for somebody else's."""
    site.taints.keep(DeviceId(DRIVER, "n1", f"gpu-{number}") for number in range(DEVICES))
    assert site.taints.keep([DeviceId(DRIVER, "n2", "gpu-0")]) == math.inf
    await site.after(1.0)
    assert len(site.rules.devices) == DEVICES
    await site.after(WANTED_SECONDS)
    assert site.taints.keep([DeviceId(DRIVER, "n2", "gpu-0")]) == 0.0
