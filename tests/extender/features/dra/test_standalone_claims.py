"""Claims that were made without a template: allocated for one of the pods that name them, and then for the next one."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from extender.binding.intents import AllocateClaim, Conflict, Done, Intent, MarkClaim, Refused, Reply
from extender.cluster.objects.devices import ResourceClaim
from extender.features.dra import feature as module
from tests.dra import read_claim
from tests.extender.features.dra import cases
from tests.extender.features.dra.claim_site import CLAIMS, DEADLINE_SECONDS, ClaimSite
from tests.extender.world import drive
from topology.annotations import keys
from topology.errors import RequestError


def site_with(*claims: str, count: int = 4) -> ClaimSite:
    """Return one node, and claims for so many devices each."""
    site = ClaimSite(1, Random(0))
    for claim in claims:
        site.create_claim(claim, count)
    return site


def why_refused(site: ClaimSite, name: str) -> str:
    with pytest.raises(RequestError) as error:
        site.planner.state.request_of(site.pod(name))
    return str(error.value)


def mark(site: ClaimSite, claim: str) -> str | None:
    item = site.world.store.get(CLAIMS, "default", claim)
    return (item["metadata"].get("annotations") or {}).get(keys.CLAIM_POD)


def test_a_claim_is_marked_for_its_pod_before_it_is_allocated() -> None:
    site = site_with("shared")
    site.create_naming("a", "shared")
    site.ticks(2)
    ours = [intent for intent in site.world.intents if isinstance(intent, MarkClaim | AllocateClaim)]
    assert [type(intent) for intent in ours] == [MarkClaim, AllocateClaim]
    assert isinstance(ours[0], MarkClaim) and ours[0].pod == site.pod("a").metadata.uid
    assert site.node_of("a") == "n0" and len(site.allocations()["shared"][1]) == 4


def test_all_pods_take_their_claims_in_one_order() -> None:
    """Or two of them could have one claim each, and wait for the other one."""
    site = site_with("x", "y", count=2)
    site.create_naming("a", "y", "x")
    site.ticks(2)
    assert [intent.name for intent in site.world.intents if isinstance(intent, MarkClaim)] == ["x", "y"]


def test_a_second_pod_waits_with_a_reason_until_the_first_is_gone() -> None:
    """The claim, which stays, is allocated for it then; the ledger forgets the first one when that has ended."""
    site = site_with("shared")
    site.create_naming("a", "shared")
    site.ticks(3)
    site.create_naming("b", "shared")
    site.ticks(2)
    assert "the pod a has it until that pod is deleted" in why_refused(site, "b")
    assert site.node_of("b") is None
    site.end("a")
    site.ticks(6)
    assert "the pod a has it until that pod is deleted" in why_refused(site, "b")
    assert (site.node_of("b"), site.world.claims("n0"), mark(site, "shared")) == (None, {}, None)
    site.world.delete("a", 0)
    site.ticks(6)
    assert site.node_of("b") == "n0"
    assert set(site.world.claims("n0").values()) == {site.pod("b").metadata.uid}
    site.end("b")
    site.ticks(6)
    assert (site.world.claims("n0"), site.allocations(), mark(site, "shared")) == ({}, {}, None)


def test_a_pod_is_read_again_when_the_one_before_it_is_deleted() -> None:
    """It was never planned, so nothing has been written to the claim."""
    site = site_with("shared")
    site.create("full", 8)
    site.ticks(3)
    site.create_naming("a", "shared")
    site.ticks(1)
    site.create_naming("b", "shared")
    site.ticks(1)
    assert "the pod a, which names it, too, comes first" in why_refused(site, "b")
    site.world.delete("a", 0)
    site.end("full")
    site.ticks(6)
    assert site.node_of("b") == "n0"


def test_a_withdrawal_ends_what_rests_on_a_mark_that_the_watch_has_not_shown() -> None:
    """Another planner has marked the claim, and its allocation is under way."""
    site = site_with("shared")
    site.create_naming("a", "shared")
    site.schedules, pod = False, site.pod("a")
    site.planner.catch_up()
    item = site.world.store.get(CLAIMS, "default", "shared")["metadata"]
    mark = MarkClaim("default", "shared", item["uid"], item["resourceVersion"], (), pod.metadata.uid)
    assert isinstance(site.world.execute(mark), Done)
    version = site.world.store.get(CLAIMS, "default", "shared")["metadata"]["resourceVersion"]
    assert drive(site.planner.dra.allocations.withdraw(pod), site.world.execute)
    late = AllocateClaim("default", "shared", item["uid"], version, {"devices": {"results": []}})
    assert isinstance(site.world.execute(late), Conflict)


def test_pods_that_name_the_same_two_claims_do_not_wait_for_each_other() -> None:
    """Whatever their order."""
    site = site_with("x", "y", count=2)
    site.create_naming("a", "x", "y")
    site.create_naming("b", "y", "x")
    site.ticks(4)
    (running,) = (name for name in "ab" if site.node_of(name))
    site.end(running)
    site.ticks(4)
    site.world.delete(running, 0)
    site.ticks(4)
    assert site.node_of("b" if running == "a" else "a") == "n0"


def test_a_pod_that_is_deleted_before_it_runs_lets_go_of_its_claim() -> None:
    """Whatever it had of it: a mark, or devices."""
    for schedules_after in (1, 3):
        site = site_with("shared", count=8)
        site.schedules = False
        site.create_naming("a", "shared")
        site.ticks(schedules_after)
        assert mark(site, "shared") is not None
        site.world.delete("a", 0)
        site.create_naming("b", "shared")
        site.schedules = True
        site.ticks(8)
        assert site.node_of("b") == "n0"


def test_a_late_allocation_for_a_deleted_pod_does_not_commit_once_its_devices_are_free() -> None:
    """The claim stays, so its version has to move before the ledger forgets the pod."""
    site = site_with("shared", count=8)
    site.create_naming("a", "shared")
    site.dies_at = AllocateClaim
    site.ticks(2)
    assert site.deaths == 1
    (late,) = site.world.late
    site.world.delete("a", 0)
    site.create("b", 8)
    site.ticks(8)
    assert site.node_of("b") == "n0"
    site.world.execute(late)
    assert "shared" not in site.allocations()


def test_a_mark_without_a_plan_goes_after_the_deadline() -> None:
    """A user wrote it, or its planner died before the ledger forgot the pod."""
    site = site_with("shared")
    site.create_claim("too-large", 33)
    site.create_naming("a", "shared", "too-large")
    site.ticks(1)
    site.world.patch(CLAIMS, "shared", {"metadata": {"annotations": {keys.CLAIM_POD: site.pod("a").metadata.uid}}})
    site.create_naming("b", "shared")
    site.ticks(3)
    assert site.node_of("b") is None
    site.ticks(int(DEADLINE_SECONDS) // 2)
    assert site.node_of("b") == "n0"


@pytest.mark.parametrize("is_allocated", [False, True])
def test_a_mark_for_a_bound_pod_that_does_not_use_the_claim_goes_after_the_deadline(is_allocated: bool) -> None:
    """A user wrote it: the pod has another claim."""
    site = site_with("shared", count=2)
    site.create("a", 2)
    site.ticks(3)
    assert site.node_of("a") == "n0"
    site.checks_ledgers = False
    if is_allocated:
        site.allocate_strangers("shared", "n0", "gpu-7")
    site.world.patch(CLAIMS, "shared", {"metadata": {"annotations": {keys.CLAIM_POD: site.pod("a").metadata.uid}}})
    site.create_naming("b", "shared")
    site.ticks(3)
    assert "the pod a has it" in why_refused(site, "b")
    site.ticks(int(DEADLINE_SECONDS) // 2 + 2)
    assert site.node_of("b") == "n0"
    assert len(site.allocations()["a-c0"][1]) == 2


def test_claims_are_let_go_in_bounded_rounds_one_namespace_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many claims one of them has, and the API server refuses."""
    monkeypatch.setattr(module, "LOOKED_AT", 8)
    monkeypatch.setattr(module, "LET_GO_AT_ONCE", 2)
    looks, written, is_idle = list[str](), list[str](), module.Dra._is_idle

    def counted(dra: module.Dra, claim: ResourceClaim) -> bool:
        looks.append(claim.metadata.namespace)
        return is_idle(dra, claim)

    def refused(intent: Intent) -> Reply:
        written.append(intent.namespace if isinstance(intent, MarkClaim) else "")
        return Refused(403, "")

    monkeypatch.setattr(module.Dra, "_is_idle", counted)
    site = site_with()
    site.answer = refused
    for namespace, claims in (("greedy", 100), ("small", 1), ("other", 2)):
        for number in range(claims):
            made = cases.claim(f"c{number}", cases.exactly(1))
            made["metadata"] |= {
                "namespace": namespace,
                "uid": f"{namespace}-{number}",
                "annotations": {keys.CLAIM_POD: "x"},
            }
            site.planner.state.claims.changed(read_claim(made))
    for _ in range(3):
        asyncio.run(site.planner.dra.let_go_of_idle())
    assert Counter(written) == {"greedy": 3, "small": 1, "other": 2}
    assert len(looks) <= 3 * 8


def test_a_claim_that_another_pod_uses_holds_up_the_fence_of_no_pod_that_is_written_on_it() -> None:
    """Or one tenant would keep lost ledgers from being rebuilt."""
    site = site_with("used", count=1)
    site.checks_ledgers = False
    site.create_naming("user", "used")
    site.ticks(3)
    assert site.node_of("user") == "n0"
    site.create_naming("waits", "none")
    site.world.patch(CLAIMS, "used", {"metadata": {"annotations": {keys.CLAIM_POD: site.pod("waits").metadata.uid}}})
    site.ticks(1)
    assert drive(site.planner.dra.allocations.withdraw(site.pod("waits")), site.world.execute)
    assert len(site.allocations()["used"][1]) == 1


@pytest.mark.slow
def test_no_device_is_given_twice_whatever_dies_or_is_late(pytestconfig: pytest.Config) -> None:
    """Planners die at any write, watches are behind each other, allocations are undone, and pods are deleted at any time."""
    for seed in range(200) if pytestconfig.getoption("--long") else [0]:
        _live_through(Random(seed))


def _live_through(random: Random) -> None:
    site = ClaimSite(2, random)
    for name, count in (("x", 4), ("y", 2), ("z", 2)):
        site.create_claim(name, count)
    names, deleted, left = list[str](), set[str](), set[str]()

    def end_and_delete(probability: float) -> None:
        for name in [*names]:
            if site.node_of(name) and site.pod(name).status.phase != "Succeeded":
                site.end(name)
            elif random.random() < (probability if site.node_of(name) else probability - 0.9):
                deleted.add(site.pod(name).metadata.uid)
                site.world.delete(name, 0)
                names.remove(name)

    site.chaos = 0.4
    for number in range(12):
        if number % 3 == 0:
            names += [f"p{number}", f"made-{number}"]
            site.create_naming(names[-2], *random.sample("xyz", random.choice([1, 1, 2])))
            site.create(names[-1], random.choice([1, 4, 8]))
        site.ticks(1)
        end_and_delete(0.93)
    site.chaos = 0.0
    for _ in range(200):
        site.ticks(1)
        end_and_delete(0.9)
        left = {uid for name in site.names for uid in site.world.claims(name).values()}
        if (left or not names) and left <= deleted and not site.allocations():
            break
    assert left <= deleted, "an agent would say that these do not run"
    assert left or not names
    assert site.allocations() == {}
