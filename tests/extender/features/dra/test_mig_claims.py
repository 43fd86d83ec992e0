"""Claims of MIG devices, from the claim to the allocation: what shares counters, memory or a GPU is never given twice."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest

from extender.cluster.objects import topologies
from extender.cluster.objects.published_parts import SharedCounters
from extender.features.dra import validate
from extender.features.dra.allocations import AllocationOutcome
from tests.dra import Json, Publish, gpu, partitioned, resource_slice, static_mig
from tests.extender.features.dra.claim_site import ClaimSite
from tests.extender.features.dra.preemption_site import PreemptionSite
from topology.placement.topology_class import TopologyClass

PER_GPU: Final = 7


def site_of(nodes: int = 1, seed: int = 0) -> ClaimSite:
    return ClaimSite(nodes, Random(seed), partitioned)


def cut(node: str, uuids: Sequence[str]) -> list[Json]:
    """Publish the first two GPUs cut up, as an administrator did, and no whole one."""
    devices = [static_mig(minor, uuids[minor], start) for minor in range(2) for start in range(3)]
    return [resource_slice(node, devices)]


def devices_of(site: ClaimSite, pod: str) -> set[str]:
    return set(site.allocations()[f"{pod}-c0"][1])


@pytest.mark.parametrize("publish", [partitioned, cut], ids=["made on demand", "made before"])
def test_a_pod_gets_so_many_devices_of_one_profile(publish: Any) -> None:
    """All from one GPU where there is room, and the next pod gets others of the same."""
    site = ClaimSite(1, Random(0), publish)
    for name, count in (("a", 2), ("b", 1)):
        site.create(name, count, profile="1g.5gb")
        site.ticks(2)
        assert site.node_of(name) == "n0" and len(devices_of(site, name)) == count
    devices = devices_of(site, "a") | devices_of(site, "b")
    assert len(devices) == 3 and len({device.split("-mig-")[0] for device in devices}) == 1
    for name in "ab":
        site.end(name)
    site.ticks(3)
    assert not site.allocations() and not site.world.claims("n0")


def test_a_gpu_of_which_a_part_is_taken_is_given_to_nobody_whole() -> None:
    """And nobody gets a part of a whole GPU, whoever has it."""
    site = site_of()
    site.create("part", 1, profile="2g.10gb")
    site.ticks(2)
    site.create("whole", 8)
    site.ticks(2)
    assert site.node_of("part") and not site.node_of("whole")
    site.create("seven", 7)
    site.ticks(2)
    assert len(devices_of(site, "seven")) == 7
    site.create("more", 4, profile="1g.5gb")
    site.create("too-many", 8, profile="1g.5gb")
    site.ticks(2)
    assert {device.split("-mig-")[0] for device in devices_of(site, "more") | devices_of(site, "part")} == {"gpu-0"}
    assert not site.node_of("too-many")


@pytest.mark.parametrize("held", ["gpu-0", "gpu-0-mig-3g20gb-9-0"])
def test_claims_of_other_classes_count(held: str) -> None:
    """Of a GPU that is held in part, the other parts are given first: it cannot be given whole any more."""
    site = site_of()
    site.create_strangers("theirs")
    site.allocate_strangers("theirs", "n0", held)
    site.create("ours", 1, profile="3g.20gb")
    site.create("seven", 7)
    site.ticks(3)
    expected = set() if held == "gpu-0" else {"gpu-0-mig-3g20gb-9-4"}
    assert site.node_of("seven") is None or expected
    assert not expected or devices_of(site, "ours") == expected


@pytest.mark.parametrize(
    ("profile", "count", "reason"),
    [("9g.1gb", 1, "node has no 9g.1gb slices"), ("1g.5gb", 32, "")],
    ids=["none", "many"],
)
def test_a_profile_that_no_gpu_has_is_not_met(profile: str, count: int, reason: str) -> None:
    """Many devices come from several GPUs, but no two that overlap."""
    site = site_of()
    site.create("a", count, profile=profile)
    site.ticks(3)
    assert (site.node_of("a") is None) == bool(reason)
    if not reason:
        devices = devices_of(site, "a")
        assert len(devices) == count and len({device.split("-mig-")[0] for device in devices}) == -(-count // PER_GPU)


@pytest.mark.parametrize(
    ("profile", "count", "victim"),
    [("1g.5gb", 1, "halves"), ("", 1, "halves"), ("3g.20gb", 2, "halves"), ("1g.5gb", 8, "six")],
)
def test_a_pod_of_higher_priority_gets_mig_devices_or_their_gpu(profile: str, count: int, victim: str) -> None:
    """The pod ends whose devices are in the way; those of a GPU that others have in part stay."""
    site = PreemptionSite(1, partitioned)
    site.running("six", 6)
    site.running("kept", 1, priority=200)
    site.running("halves", 2, profile="3g.20gb", priority=-1)
    site.create("high", count, profile=profile, priority=100)
    site.settle()
    assert site.node_of("high") == "n0"
    assert victim in site.evicted and "kept" not in site.evicted


def test_a_pod_with_a_whole_gpu_ends_for_its_mig_devices() -> None:
    """It keeps seven of them, though it has one GPU."""
    site = PreemptionSite(1, partitioned)
    site.running("seven", 7, priority=200)
    site.running("low", 1, priority=-1)
    site.create("high", 4, profile="1g.5gb", priority=100)
    site.settle()
    assert site.evicted == ["low"] and site.node_of("high")


def test_all_pods_with_parts_of_a_gpu_end_for_a_gang() -> None:
    """Its GPU is free without the last of them; the pod with parts of another one stays."""
    site = PreemptionSite(1, partitioned)
    site.running("five", 5, priority=200)
    site.running("kept", 2, profile="3g.20gb", priority=200)
    for name in ("a", "b"):
        site.running(name, 1, profile="3g.20gb", priority=-1)
    site.running("c", 1, priority=-1)
    site.gang("gang", 2, 1)
    site.settle(8)
    assert sorted(site.evicted) == ["a", "b", "c"] and site.node_of("gang-0") and site.node_of("gang-1")


def test_a_gang_gets_mig_devices_of_the_gpus_of_others() -> None:
    """One GPU is enough for all members, so one pod ends."""
    site = PreemptionSite(1, partitioned)
    site.running("six", 6, priority=200)
    for name in ("a", "b"):
        site.running(name, 1, priority=-1)
    site.gang("gang", 2, 3, profile="1g.5gb")
    site.settle(8)
    assert len(site.evicted) == 1 and site.node_of("gang-0") and site.node_of("gang-1")


def one_gpu(node: str, uuids: Sequence[str]) -> list[Json]:
    """Publish a single GPU, whole and in parts."""
    return partitioned(node, uuids[:1])


def one_decoder(node: str, uuids: Sequence[str]) -> list[Json]:
    """Publish a single GPU with a decoder, which each small part needs."""
    return decoders(node, uuids[:1])


def decoders(node: str, uuids: Sequence[str]) -> list[Json]:
    """Publish two GPUs at most, each with a decoder, which each small part needs."""
    counters, *slices = partitioned(node, uuids[:2])
    for shared in counters["spec"]["sharedCounters"]:
        shared["counters"]["decoders"] = {"value": "1"}
    for device in [device for item in slices for device in item["spec"]["devices"] if "-1g5gb-" in device["name"]]:
        device["consumesCounters"][0]["counters"]["decoders"] = {"value": "1"}
    return [counters, *slices]


def test_no_two_devices_of_one_pod_share_an_engine() -> None:
    """They come from two GPUs, as media engines are of each GPU."""
    site = ClaimSite(1, Random(0), decoders)
    site.create("two", 2, profile="1g.5gb")
    site.create("three", 3, profile="1g.5gb")
    site.ticks(3)
    assert devices_of(site, "two") == {"gpu-0-mig-1g5gb-19-6", "gpu-1-mig-1g5gb-19-6"}
    assert not site.node_of("three") and not site.planner.counted(AllocationOutcome.INVALID)


def test_of_two_pods_that_need_one_engine_one_gets_it() -> None:
    """Though both are planned in one round."""
    site = ClaimSite(1, Random(0), one_decoder)
    for name in "ab":
        site.create(name, 1, profile="1g.5gb")
    site.ticks(3)
    assert [site.node_of(name) for name in "ab"] == ["n0", None]
    assert not site.planner.counted(AllocationOutcome.INVALID)


def test_no_pod_ends_for_a_gang_whose_members_need_one_engine() -> None:
    """The first would get it, and the second never."""
    site = PreemptionSite(1, one_decoder)
    site.running("low", 2, profile="3g.20gb", priority=-1)
    site.gang("gang", 2, 1, profile="1g.5gb")
    site.settle()
    assert not site.evicted


def without_counters(node: str, uuids: Sequence[str]) -> list[Json]:
    """Publish a single GPU whole, and two parts of it that exist."""
    parts = [static_mig(0, uuids[0], start) for start in range(2)]
    return [resource_slice(node, [gpu(0, uuids[0]), *parts])]


@pytest.mark.parametrize(
    ("publish", "kept", "low", "profile"),
    [
        (one_gpu, "3g.20gb", "3g.20gb", ""),
        (without_counters, "1g.5gb", "1g.5gb", ""),
        (one_decoder, "1g.5gb", "3g.20gb", "1g.5gb"),
    ],
    ids=["GPU", "GPU without counters", "counter"],
)
def test_no_pod_ends_for_what_stays_taken(publish: Publish, kept: str, low: str, profile: str) -> None:
    """Another pod keeps the GPU from being whole, or has all of a counter."""
    site = PreemptionSite(1, publish)
    site.running("kept", 1, profile=kept, priority=200)
    site.running("low", 1, profile=low, priority=-1)
    site.create("high", 1, profile=profile, priority=100)
    site.settle()
    assert not site.evicted and not site.node_of("high")


def storm(seed: int) -> ClaimSite:
    """Have pods with GPUs, and with parts of them, come and go while the planner dies now and then."""
    site, random = site_of(2, seed), Random(seed)
    site.chaos = 0.02
    for number in range(24):
        profile = random.choice(["", "1g.5gb", "2g.10gb", "3g.20gb"])
        site.create(f"p{number}", random.randint(1, 4), profile=profile)
    for _ in range(60):
        site.ticks(1)
        for name in [f"p{number}" for number in range(24) if site.node_of(f"p{number}")]:
            if random.random() < 0.2:
                site.end(name)
    site.chaos = 0.0
    return site


def settle(site: ClaimSite) -> None:
    for _ in range(40):
        site.ticks(1)
        for number in range(24):
            if site.node_of(f"p{number}"):
                site.end(f"p{number}")
    assert all(site.node_of(f"p{number}") for number in range(24))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_planners_that_die_give_no_counter_twice(seed: int) -> None:
    """The site checks each write; in the end every pod had its devices, and nothing is left in the ledgers."""
    site = storm(seed)
    settle(site)
    site.ticks(5)
    assert not site.allocations() and not site.world.claims("n0") and not site.world.claims("n1")


def full() -> ClaimSite:
    """Have two halves of the only GPU that is offered, and a pod that wants a seventh of it."""
    site = ClaimSite(1, Random(0), one_gpu)
    for name, count, profile in (("halves", 2, "3g.20gb"), ("seventh", 1, "1g.5gb")):
        site.create(name, count, profile=profile)
        site.ticks(3)
    assert site.node_of("halves") and not site.node_of("seventh")
    return site


def test_counters_that_are_not_counted_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """View and planner count them, and so does the validator: each is enough to give nothing twice."""
    assert not full().planner.counted(AllocationOutcome.INVALID)
    with monkeypatch.context() as patch:
        patch.setattr(validate, "consumption", lambda _: {})
        full()
    monkeypatch.setattr(SharedCounters, "exhausted_beside", lambda *_: frozenset())
    monkeypatch.setattr(topologies, "overlaps", lambda slices: ((),) * len(slices))
    assert full().planner.counted(AllocationOutcome.INVALID)
    monkeypatch.setattr(validate, "consumption", lambda _: {})
    with pytest.raises(AssertionError, match="take more of"):
        full()


def test_what_is_planned_and_not_allocated_yet_counts_for_the_validator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two plans that exclude each other none is written."""
    monkeypatch.setattr(SharedCounters, "exhausted_beside", lambda *_: frozenset())
    monkeypatch.setattr(topologies, "overlaps", lambda slices: ((),) * len(slices))
    monkeypatch.setattr(TopologyClass, "excluding", lambda _, devices: devices)
    site = ClaimSite(1, Random(0), one_gpu)
    site.create("halves", 2, profile="3g.20gb")
    site.create("seventh", 1, profile="1g.5gb")
    site.ticks(1)
    assert not site.allocations() and site.planner.counted(AllocationOutcome.INVALID)
