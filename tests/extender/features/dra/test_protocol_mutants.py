"""The protocol of claims, and what breaks if a single step of it is left out; and planners that die at each of its writes."""

from __future__ import annotations

import asyncio
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any, Final

import msgspec
import pytest

from benchmarks.simulated.double.resources import NODES, PODS
from extender.binding.intents import AllocateClaim, Intent, MarkClaim, OpenGate, Reply, SwapLedger
from extender.binding.planned_claims import take_claims_back
from extender.cluster.caches.resource_claims import ResourceClaims
from extender.cluster.objects.devices import ResourceClaim
from extender.features.dra import allocation, allocations, validate
from extender.features.dra.allocations import Allocations
from extender.features.dra.caches import ClaimCache
from extender.features.dra.requests import is_ours
from extender.kubernetes import rest
from extender.kubernetes.rest import Request
from tests.extender.features.dra.claim_site import CLAIMS, ClaimSite, Planner
from tests.extender.world import Crash, drive
from topology.annotations import keys

Patch = pytest.MonkeyPatch


def allocated(site: ClaimSite) -> ClaimSite:
    """Let the planner allocate for a pod that needs a whole node; its gate is not open yet."""
    site.create("a", 8)
    site.ticks(1)
    assert site.allocations() and not any(isinstance(intent, OpenGate) for intent in site.world.intents)
    return site


def one_pod_starts() -> None:
    """At every moment the ledger names what is allocated."""
    allocated(ClaimSite(1, Random(0)))


def a_plan_is_taken_back() -> None:
    """Take it back: the claim holds nothing any more before its GPUs leave the ledger."""
    site = allocated(ClaimSite(1, Random(0)))
    uid = site.pod("a").metadata.uid
    assert asyncio.run(site.planner.driver.drive(take_claims_back(site.planner.state, [uid]), 1e9))
    assert site.world.claims("n0") == {}


def a_stranger_names_the_claim() -> None:
    """Let another pod name a claim: for that pod it is not taken back."""
    site = allocated(ClaimSite(1, Random(0)))
    site.create("stranger", 8)
    names = {"status": {"resourceClaimStatuses": [{"name": "c0", "resourceClaimName": "a-c0"}]}}
    site.world.patch(PODS, "stranger", names, "status")
    site.planner.state.claims.replaced([])
    assert drive(site.planner.dra.allocations.withdraw(site.pod("stranger")), site.world.execute)
    assert site.allocations().keys() == {"a-c0"}


def an_allocation_comes_late() -> None:
    """Its planner is dead, and the plan was taken back since."""
    site = ClaimSite(1, Random(0))
    site.create("a", 8)
    site.dies_at = AllocateClaim
    site.ticks(1)
    (late,) = site.world.late
    site.world.late.clear()
    uid = site.pod("a").metadata.uid
    assert asyncio.run(site.planner.driver.drive(take_claims_back(site.planner.state, [uid]), 1e9))
    site.world.execute(late)
    assert site.allocations() == {}


def a_claim_has_configuration() -> None:
    """NVIDIA's driver reads it in the allocation, and nowhere else."""
    site = ClaimSite(1, Random(0))
    opaque = {"driver": "gpu.nvidia.com", "parameters": {"sharing": {"strategy": "TimeSlicing"}}}
    site.create("a", 4, config=[{"opaque": opaque}])
    site.ticks(2)
    (claim,) = site.world.store.list(CLAIMS).items
    assert claim["status"]["allocation"]["devices"].get("config") == [{"source": "FromClaim", "opaque": opaque}]


def another_class_has_a_device() -> None:
    """Have seven GPUs for a pod that needs eight."""
    site = ClaimSite(1, Random(0))
    site.create_strangers("theirs")
    site.allocate_strangers("theirs", "n0", "gpu-3")
    site.create("a", 8)
    site.ticks(3)
    assert "a-c0" not in site.allocations()


def allocate_before_ledger(patch: Patch) -> None:
    """Let the ledger be as before, though the planner believes that it is written."""
    execute = ClaimSite.execute

    async def changed(self: ClaimSite, intent: Intent, seconds: float) -> Reply:
        if not isinstance(intent, SwapLedger):
            return await execute(self, intent, seconds)
        before = self.world.store.get(NODES, "", intent.node)["metadata"]["annotations"][keys.LEDGER]
        reply = self.world.execute(intent)
        self.world.patch(NODES, intent.node, {"metadata": {"annotations": {keys.LEDGER: before}}})
        return reply

    patch.setattr(ClaimSite, "execute", changed)


def release_before_deallocation(patch: Patch) -> None:
    """Let nothing be taken back between the fence and the ledger."""
    init = Planner.__init__

    def changed(self: Planner, site: ClaimSite) -> None:
        init(self, site)
        self.driver.after_fence.clear()

    patch.setattr(Planner, "__init__", changed)


def compare_no_uid(patch: Patch) -> None:
    """Take back whatever claim has the name."""
    rewrite(patch, Allocations, allocations, "_withdraw", " or claim.pod != pod", "")


def compare_no_version(patch: Patch) -> None:
    """Write a claim in any version."""
    of_claim = rest._of_claim

    def changed(intent: Any) -> Request:
        request = of_claim(intent)
        if request.body is None:
            return request
        document = msgspec.json.decode(request.body)
        del document["metadata"]["resourceVersion"]
        return replace(request, body=msgspec.json.encode(document))

    patch.setattr(rest, "_of_claim", changed)


def copy_no_configuration(patch: Patch) -> None:
    """Neither write nor expect any."""
    for module in (allocation, validate):
        patch.setattr(module, "configuration", lambda *_: [])


def count_no_others(patch: Patch) -> None:
    """Read claims of our class only."""
    read, holding = ResourceClaims._read, ClaimCache.holding

    def changed(self: ResourceClaims, item: ResourceClaim) -> object:
        return read(self, item) if is_ours(item) else None

    patch.setattr(ResourceClaims, "_read", changed)
    patch.setattr(ClaimCache, "holding", lambda self, pools: [*filter(is_ours, holding(self, pools))])


def rewrite(patch: Patch, owner: type, module: Any, name: str, before: str, after: str) -> None:
    """Replace some words of a method."""
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    assert source.count(before) == 1
    scope = dict[str, Any]()
    exec(compile(source.replace(before, after), name, "exec", flags=0), vars(module), scope)
    patch.setattr(owner, name, scope[name])


MUTANTS: Final[dict[str, tuple[Callable[[Patch], None], Callable[[], None]]]] = {
    "allocation before ledger": (allocate_before_ledger, one_pod_starts),
    "release before deallocation": (release_before_deallocation, a_plan_is_taken_back),
    "UID not compared": (compare_no_uid, a_stranger_names_the_claim),
    "resourceVersion not compared": (compare_no_version, an_allocation_comes_late),
    "configuration not copied": (copy_no_configuration, a_claim_has_configuration),
    "claims of another class not counted": (count_no_others, another_class_has_a_device),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_protocol_without_one_of_its_steps_is_caught(name: str, monkeypatch: Patch) -> None:
    """And with all of them the same run passes."""
    break_it, run = MUTANTS[name]
    run()
    break_it(monkeypatch)
    with pytest.raises(AssertionError):
        run()


class Deaths:
    """The planner dies at some of its writes, counted from the site's beginning."""

    def __init__(self, site: ClaimSite, fates: dict[int, str]) -> None:
        self.writes = 0
        self._site, self._fates = site, fates
        site.answer = self._answer

    def _answer(self, intent: Intent) -> Reply | None:
        if not isinstance(intent, AllocateClaim | MarkClaim | OpenGate | SwapLedger):
            return None
        fate = self._fates.get(self.writes, "")
        self.writes += 1
        if fate == "late":
            self._site.world.late.append(intent)
        elif fate == "after":
            self._site.world.execute(intent)
        if fate:
            raise Crash
        return None


def live(fates: dict[int, str], undone: bool) -> int:
    """Have two pods that both need the node, the first of which may be undone once; returns the number of writes."""
    site = ClaimSite(1, Random(0))
    deaths = Deaths(site, fates)
    site.create("a", 4, 4)
    site.create("b", 8)
    site.unfit = {"n0"} if undone else set()
    for number in range(60):
        if site.undone:
            site.unfit.clear()
        if number % 4 == 3 and site.world.late:
            site.world.execute(site.world.late.pop())
        site.ticks(1)
        for name in "ab":
            if site.node_of(name):
                site.end(name)
        if (
            all(map(site.node_of, "ab"))
            and not site.allocations()
            and not site.world.late
            and not site.world.claims("n0")
        ):
            return deaths.writes
    raise AssertionError(f"{fates}: {site.allocations()}, {site.world.claims('n0')}")


@pytest.mark.slow
@pytest.mark.parametrize("undone", [False, True], ids=["runs", "is undone"])
def test_planners_that_die_at_any_write_give_no_device_twice_and_lose_none(
    pytestconfig: pytest.Config, *, undone: bool
) -> None:
    """Before it, after it, or with it still on its way, to arrive some time later; in the long form at any two writes."""
    writes = live({}, undone)
    assert writes >= 8
    deaths = 2 if pytestconfig.getoption("--long") else 1
    for at in combinations(range(writes), deaths):
        for fates in product(("before", "after", "late"), repeat=deaths):
            live(dict(zip(at, fates, strict=True)), undone)
