"""Pods whose claims accept several requests: the first for which there is room, planned and named as kube-scheduler does."""

from __future__ import annotations

from random import Random

from extender.binding.intents import AllocateClaim, SwapLedger
from tests.extender.features.dra.claim_site import ClaimSite
from topology.annotations import keys
from topology.annotations.records import decode_placement

NO_DEVICE = "device.driver == 'nic.example.com'"


def site_with(*counts: int) -> ClaimSite:
    """Return one node where other pods hold so many GPUs each."""
    site = ClaimSite(1, Random(0))
    for at, count in enumerate(counts):
        site.create(f"first-{at}", count)
    site.ticks(3)
    return site


def test_the_first_request_is_met_where_there_is_room() -> None:
    site = site_with()
    site.create("a", (8, 2))
    site.ticks(3)
    assert site.node_of("a") == "n0"
    assert (len(site.allocations()["a-c0"][1]), site.requests_met()["a-c0"]) == (8, {"gpus/way-0"})


def test_the_next_request_is_met_where_there_is_less_room() -> None:
    """The ledger has as many GPUs as the claim, the pod counts for so many, and they are freed with it."""
    site = site_with(4)
    site.create("a", (8, 6, 2), 1)
    site.ticks(3)
    assert site.node_of("a") == "n0"
    assert (len(site.allocations()["a-c0"][1]), site.requests_met()["a-c0"]) == (2, {"gpus/way-2"})
    assert len(site.world.claims("n0")) == 4 + 2 + 1
    pod = site.planner.state.pods.get(site.pod("a").metadata.uid)
    assert pod is not None and pod.gpus == 2 + 1
    for name in ("a", "first-0"):
        site.end(name)
    site.ticks(4)
    assert site.world.claims("n0") == {}


def test_another_planner_carries_on_with_the_request_that_is_planned() -> None:
    """Nothing of it is taken back."""
    site = site_with(4)
    site.create("a", (8, 2))
    site.dies_at = AllocateClaim
    site.ticks(1)
    assert site.deaths == 1 and len(site.world.claims("n0")) == 6
    before = len(site.world.intents)
    site.ticks(3)
    assert not any(isinstance(intent, SwapLedger) for intent in site.world.intents[before:])
    assert (site.node_of("a"), site.requests_met()["a-c0"]) == ("n0", {"gpus/way-1"})


def test_a_request_that_comes_later_may_be_for_more_devices() -> None:
    """No device suits the first one; the pod's record has the GPUs of the other."""
    site = site_with()
    site.create("a", (2, 4), selector=NO_DEVICE)
    site.ticks(3)
    assert (site.node_of("a"), site.requests_met()["a-c0"]) == ("n0", {"gpus/way-1"})
    assert len(site.world.claims("n0")) == len(site.allocations()["a-c0"][1]) == 4
    record = decode_placement((site.pod("a").metadata.annotations or {})[keys.PLACEMENT])
    assert (record.planned_node, len(record.containers["main"])) == ("n0", 4)


def test_a_pod_that_no_device_suits_holds_up_none_that_requests_as_many() -> None:
    """They differ in nothing but the selectors of their claims."""
    site = site_with()
    site.create("none", 2, selector=NO_DEVICE)
    site.create("a", 2)
    site.ticks(3)
    assert (site.node_of("none"), site.node_of("a")) == (None, "n0")
