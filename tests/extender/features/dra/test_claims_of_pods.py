"""Pods whose GPUs are claims: planned, allocated, opened and followed, whatever dies or is lost on the way."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from extender.binding.intents import AllocateClaim, Conflict, MarkClaim, OpenGate, SwapLedger
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.versions import Listing
from extender.features.dra.caches import ClaimCache
from tests.dra import read_claim
from tests.extender.features.dra.cases import claim, exactly, opaque
from tests.extender.features.dra.claim_site import CLAIMS, DEADLINE_SECONDS, ClaimSite
from tests.extender.world import drive

SEEDS = range(4)


def test_ledger_finalizer_allocation_and_gate_come_in_this_order() -> None:
    """The gate opens without an affinity: the allocation directs the pod."""
    site = ClaimSite(1, Random(0))
    site.create("a", 4)
    site.ticks(2)
    ours = [each for each in site.world.intents if isinstance(each, SwapLedger | MarkClaim | AllocateClaim | OpenGate)]
    assert [type(each) for each in ours[:4]] == [SwapLedger, MarkClaim, AllocateClaim, OpenGate]
    assert isinstance(ours[3], OpenGate) and not ours[3].is_directed and not ours[3].is_pinned
    assert site.node_of("a") == "n0"
    assert site.allocations()["a-c0"][0] == "n0"


def test_all_claims_of_a_pod_are_allocated_on_one_node() -> None:
    """Each gets as many devices as it requests."""
    site = ClaimSite(2, Random(0))
    site.create("a", 2, 3)
    site.ticks(3)
    assert site.node_of("a") is not None
    assert {name: len(devices) for name, (_, devices) in site.allocations().items()} == {"a-c0": 2, "a-c1": 3}


def test_a_pod_whose_allocation_is_undone_is_planned_elsewhere() -> None:
    """The node steps back from it, and the others of its claims are taken back."""
    site = ClaimSite(2, Random(0))
    site.create("a", 2, 2)
    site.schedules = False
    site.ticks(2)
    (first,) = {node for node, _ in site.allocations().values()}
    site.unfit, site.schedules = {first}, True
    site.ticks(12)
    assert site.undone == 1
    assert site.node_of("a") not in (None, first)
    assert site.world.claims(first) == {}


def test_an_allocation_that_nobody_reserves_is_taken_back() -> None:
    """After the deadline, and planned again."""
    site = ClaimSite(1, Random(0))
    site.schedules = False
    site.create("a", 8)
    site.ticks(3)
    assert site.allocations()
    before = len(site.world.intents)
    site.ticks(int(DEADLINE_SECONDS))
    later = [each for each in site.world.intents[before:] if isinstance(each, AllocateClaim)]
    assert later and later[0].allocation is None


def test_a_late_allocation_of_a_dead_planner_does_not_commit_once_its_plan_is_taken_back() -> None:
    """Taking back moves the claim's version, also where the claim holds nothing."""
    site = ClaimSite(1, Random(0))
    site.create("a", 4)
    site.dies_at = AllocateClaim
    site.ticks(1)
    (late,) = site.world.late
    assert site.deaths == 1 and site.allocations() == {}
    assert drive(site.planner.dra.allocations.withdraw(site.pod("a")), site.world.execute)
    assert isinstance(site.world.execute(late), Conflict)
    assert site.allocations() == {}


def test_pods_that_name_a_claim_are_read_again_one_after_the_other() -> None:
    """Any number of pods may name it, so the watch does not wait for them. Those behind the first one are refused."""
    site = ClaimSite(1, Random(0))
    state, refused = site.planner.state, list[int]()
    for name in "abc":
        spec = {"containers": [{"name": "main"}], "resourceClaims": [{"name": "gpus", "resourceClaimName": "ours"}]}
        state.pods.changed(
            msgspec.convert({"metadata": {"name": name, "namespace": "ml", "uid": name}, "spec": spec}, Pod)
        )
    state.claims.changed(read_claim(claim("ours", exactly(1))))
    for _ in site.planner.dra._reading_again():
        refused.append(sum(pod.claimed is not None and not pod.claimed.request for pod in state.pods))
    assert [*dict.fromkeys(refused)] == [0, 1, 2]


def test_the_feature_hears_of_a_list_one_claim_after_the_other() -> None:
    """Of claims that are gone, too: the pod of each is read again."""
    heard = list[object]()
    cache = ClaimCache(lambda before, after: heard.append(after))
    listed = [read_claim(claim(name, exactly(1))) for name in "ab"]
    counts = [len(heard) for objects in (listed, []) for _ in cache.replacing(objects, Listing())]
    assert counts == [1, 2, 3, 4]


def test_a_claim_that_is_too_large_is_not_kept_whole() -> None:
    """The watch keeps what the feature reads."""
    large = read_claim(claim("a", exactly(1), config=[opaque(text="x" * 70_000)]))
    assert ClaimSite(1, Random(0)).planner.state.claims.keep(large).spec.json_bytes


def test_a_plan_whose_claims_are_gone_is_given_up() -> None:
    """The watch of claims may be ahead of the watch of pods."""
    site = ClaimSite(1, Random(0))
    site.create("a", 4)
    site.dies_at = MarkClaim
    site.ticks(1)
    pod = site.planner.state.pods.get(site.pod("a").metadata.uid)
    assert pod is not None
    for _ in site.planner.state.claims.replacing([], Listing()):
        pass
    assert not site.planner.dra.allocations.is_done(pod, "n0")
    assert not drive(site.planner.dra.allocations.do(pod, "n0"), site.world.execute)


def test_an_ended_pod_frees_its_devices_and_its_ledger() -> None:
    site = ClaimSite(1, Random(0))
    site.create("a", 8)
    site.create("b", 8)
    site.ticks(3)
    (first,) = (name for name in "ab" if site.node_of(name))
    site.end(first)
    site.ticks(6)
    assert all(site.node_of(name) == "n0" for name in "ab")


def test_an_empty_claim_that_stays_keeps_no_gpus_for_an_ended_pod() -> None:
    """A user made it, and wrote down the pod as its owner."""
    site = ClaimSite(1, Random(0))
    site.create("a", 8)
    site.ticks(3)
    assert site.node_of("a") == "n0"
    site.create_claim("stays", 1)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": site.pod("a").metadata.uid, "controller": True}
    site.world.patch(CLAIMS, "stays", {"metadata": {"ownerReferences": [owner]}})
    site.end("a")
    site.create("b", 8)
    site.ticks(6)
    assert site.node_of("b") == "n0"


def test_a_late_allocation_for_an_ended_pod_does_not_commit_once_its_devices_are_free() -> None:
    """Its claim is empty and stays. The version in which the allocation could commit ends first."""
    site = ClaimSite(1, Random(0))
    site.create("a", 8)
    site.dies_at = AllocateClaim
    site.ticks(1)
    (late,) = site.world.late
    site.end("a")
    site.create("b", 8)
    site.ticks(8)
    assert site.node_of("b") == "n0"
    assert isinstance(site.world.execute(late), Conflict)


@pytest.mark.slow
def test_no_device_is_given_twice_whatever_dies_or_is_late(pytestconfig: pytest.Config) -> None:
    """Planners die at any write, writes are lost or late, kinds of watches are behind each other, allocations are undone."""
    for seed in range(200) if pytestconfig.getoption("--long") else SEEDS:
        _live_through(Random(seed))


def _live_through(random: Random) -> None:
    site = ClaimSite(3, random)
    site.chaos = 0.4
    requests: list[list[int | tuple[int, int]]] = [[1], [2], [(8, 4)], [1, 2], [8], [(4, 1), 2]]
    sizes = {f"p{number}": random.choice(requests) for number in range(12)}
    for name, counts in sizes.items():
        site.create(name, *counts)
    for _ in range(50):
        site.ticks(1)
        for name in sizes:
            if site.node_of(name) and random.random() < 0.1:
                site.end(name)
    site.chaos = 0.0
    for _ in range(60):
        site.ticks(1)
        for name in sizes:
            if site.node_of(name):
                site.end(name)
    assert [name for name in sizes if site.node_of(name) is None] == []
    assert site.deaths > 0
    assert site.allocations() == {}
    assert [site.world.claims(name) for name in site.names] == [{}, {}, {}]
