"""A gang with claims that finds no room ends pods of lower priority for all of its members, or for none."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from time import time

import pytest

from benchmarks.simulated.double.resources import BUDGETS, PODS
from extender.features.dra import gang_victims, preempting
from extender.features.dra.gang_victims import GangVictimSearch
from extender.features.dra.victims import DeviceVictims, NoVictims
from extender.kit.clock import Instant
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.queue import NodesOfCluster, on_their_way
from tests.extender.features.dra.preemption_site import GPUS, PreemptionSite
from topology.annotations import keys
from topology.effort import finish


def search(site: PreemptionSite, gang: str = "gang", refused: Collection[str] = ()) -> DeviceVictims | NoVictims:
    """Return what the planner finds for a gang that has no room; `refused`: UIDs of pods whose eviction was refused."""
    site.ticks(2)
    planner = site.planner
    unit = planner.queue.outlook.gang_of(site.pod(f"{gang}-0").metadata.uid)
    assert unit is not None and unit.is_gang
    now = Instant(planner.replica.seconds, 0.0)
    nodes = PlannedNodes(NodesOfCluster(planner.state), on_their_way(planner.state, now))
    refusals = dict.fromkeys(refused, NoVictims.REFUSED)
    return finish(GangVictimSearch(planner.state, planner.dra.demands, nodes, unit, now, refusals.get).run())


def names(victims: DeviceVictims | NoVictims) -> set[str] | NoVictims:
    return victims if isinstance(victims, NoVictims) else {pod.key[1] for pod in victims.pods}


def full_nodes(*priorities: int, **labels: str) -> PreemptionSite:
    """Return nodes that one pod each fills, `p<priority>`; `labels`: app of such a pod."""
    site = PreemptionSite(len(priorities))
    for priority in priorities:
        name = f"p{priority}"
        site.running(name, GPUS, priority=priority, labels={"app": labels.get(name, "")})
    return site


def begun(site: PreemptionSite) -> PreemptionSite:
    """Let the planner begin a preemption, and evict nobody yet."""
    while not site.preemptions.under_way:
        site.settle(1)
    assert site.evicted == []
    return site


def test_all_members_get_the_devices_of_victims_on_several_nodes() -> None:
    """The least important pods end; no member has a device before the claims of all victims are deallocated."""
    site = full_nodes(1, 2, 3)
    site.kubelet_works = False
    site.gang("gang", 2, GPUS)
    site.settle(6)
    assert sorted(site.evicted) == ["p1", "p2"]
    assert {name.removesuffix("-c0") for name in site.allocations()} == {"p1", "p2", "p3"}
    freed = {site.node_of("p1"), site.node_of("p2")}
    line = site.preemptions.words_of(site.waiting("gang-1"))
    assert line is not None and line.startswith("waits for 2 victims on n")
    site.kubelet_works = True
    site.settle(6)
    assert {site.node_of("gang-0"), site.node_of("gang-1")} == freed
    assert not site.preemptions.under_way and sorted(site.evicted) == ["p1", "p2"]
    assert {name for name, _ in site.recorder.of("Preempted")} == {"p1", "p2"}


def test_nobody_ends_where_not_all_members_would_get_room() -> None:
    """One of two would."""
    site = full_nodes(1, 200)
    site.gang("gang", 2, GPUS)
    assert search(site) is NoVictims.NONE
    site.settle(8)
    assert site.evicted == [] and site.node_of("gang-0") is None


def test_members_take_room_that_is_there_and_pods_end_for_the_others_alone() -> None:
    site = PreemptionSite(2)
    site.running("p1", GPUS, priority=1)
    site.gang("gang", 2, GPUS)
    victims = search(site)
    assert names(victims) == {"p1"} and isinstance(victims, DeviceVictims) and set(victims.nodes) == {"n0", "n1"}


def halves(nodes: int, *priorities: int) -> PreemptionSite:
    """Return full nodes with two pods each, `h<number>`, of these priorities."""
    site = PreemptionSite(nodes)
    for number, priority in enumerate(priorities):
        site.running(f"h{number}", GPUS // 2, priority=priority, labels={"app": f"h{number}"})
    return site


def test_victims_are_on_as_few_nodes_as_possible() -> None:
    """Those nodes come first where the most GPUs become free."""
    site = halves(3, 200, 0, 200, 0)
    site.running("large", GPUS)
    site.gang("gang", 2, GPUS // 2)
    assert names(search(site)) == {"large"}


@pytest.mark.parametrize("sizes", [(3, 5), (1, 2, 5), (2, 2, 4)])
def test_no_pod_ends_without_which_the_gang_has_room(sizes: tuple[int, ...]) -> None:
    """The largest of these pods makes room alone."""
    site = PreemptionSite()
    for number, gpus in enumerate(sizes):
        site.running(f"s{number}", gpus)
    site.gang("gang", 2, 2)
    assert names(search(site)) == {f"s{len(sizes) - 1}"}


def test_no_pod_ends_that_is_more_important_than_needed() -> None:
    """Even if that takes more nodes."""
    site = halves(2, 0, 50, 0, 50)
    zeros = {site.node_of("h0"), site.node_of("h2")}
    site.gang("gang", 2, GPUS // 2)
    victims = search(site)
    assert names(victims) == {"h0", "h2"} and isinstance(victims, DeviceVictims) and set(victims.nodes) == zeros


def test_budgets_hold_over_all_nodes_together() -> None:
    """One of two pods of a budget may end; where the other one would have to, too, nobody does."""
    site = full_nodes(1, 2, 3, p1="kept", p2="kept")
    site.budget("kept", allowed=1)
    site.gang("gang", 2, GPUS)
    victims = names(search(site))
    assert isinstance(victims, set) and "p3" in victims and len(victims) == 2
    site.gang("large", 3, GPUS)
    assert search(site, "large") is NoVictims.BUDGETS


def test_a_budget_that_is_used_up_meanwhile_saves_all_victims() -> None:
    """Somebody else has used it since all evictions were tried."""
    site = full_nodes(1, 2, p2="kept")
    site.budget("kept", allowed=1)
    site.gang("gang", 2, GPUS)
    budget = site.world.store.list(BUDGETS).items[0]["metadata"]["name"]
    begun(site).world.patch(BUDGETS, budget, {"status": {"disruptionsAllowed": 0}}, "status")
    site.settle(2)
    assert site.evicted == []


def test_a_pod_whose_eviction_was_refused_is_spared() -> None:
    site = full_nodes(1, 2)
    site.gang("gang", 2, GPUS)
    assert search(site, refused={site.pod("p1").metadata.uid}) is NoVictims.REFUSED


def test_what_the_first_victims_give_back_is_held_until_the_last_has_ended() -> None:
    """A small pod would fit there meanwhile."""
    site = full_nodes(1, 2)
    site.kubelet_works = False
    site.gang("gang", 2, GPUS)
    site.settle(5)
    assert sorted(site.evicted) == ["p1", "p2"]
    site.end("p1")
    site.settle(2)
    site.create("small", 1, priority=50)
    site.settle(3)
    assert site.node_of("small") is None and site.node_of("gang-0") is None
    site.kubelet_works = True
    site.settle(6)
    assert site.node_of("gang-0") and site.node_of("gang-1") and site.node_of("small") is None


def test_victims_that_do_not_end_in_time_give_back_all_holds() -> None:
    site = full_nodes(1, 2)
    site.kubelet_works = False
    site.gang("gang", 2, GPUS)
    site.settle(5)
    assert len(site.planner.state.holds.places(site.seconds)) == 2
    site.seconds += preempting.GRACE_SECONDS + preempting.MARGIN_SECONDS
    site.settle(1)
    assert not site.preemptions.under_way and not site.planner.state.holds.firm(site.seconds)


def test_places_are_held_until_pods_that_end_anyway_have_had_their_grace_periods() -> None:
    """Else the victim beside them would have ended in vain."""
    site = PreemptionSite(2)
    site.preemptions.clock = lambda: Instant(site.seconds, time())  # the double has the time of day
    site.kubelet_works = False
    site.running("slow", GPUS, terminationGracePeriodSeconds=500)
    site.running("quick", GPUS)
    site.world.delete("slow", 500)
    site.gang("gang", 2, GPUS)
    site.settle(5)
    assert site.evicted == ["quick"]
    site.end("quick")
    site.seconds += 400.0
    site.settle(1)
    assert site.preemptions.under_way
    site.kubelet_works = True
    site.settle(6)
    assert site.node_of("gang-0") and site.node_of("gang-1")


def test_nobody_ends_for_a_gang_of_which_a_pod_is_gone() -> None:
    """The watch may be behind, so all of its pods are read live."""
    site = full_nodes(1, 2)
    site.gang("gang", 2, GPUS)
    for _ in range(10):
        site.settle(0 if site.preemptions.under_way else 1)
    assert site.preemptions.under_way
    site.world.delete("gang-1", 0)
    asyncio.run(site.preemptions.follow())  # the watch has not shown the deletion yet
    site.settle(4)
    assert site.evicted == [] and not site.preemptions.under_way


@pytest.mark.parametrize("changed", [[0], [0, 1]])
def test_nobody_ends_for_a_gang_that_has_become_larger(changed: list[int]) -> None:
    """It would not start before its other pod comes. One pod that says so is enough."""
    site = full_nodes(1, 2)
    site.gang("gang", 2, GPUS)
    begun(site)
    for number in changed:
        site.world.patch(PODS, f"gang-{number}", {"metadata": {"annotations": {keys.GROUP_SIZE: "3"}}})
    site.settle(4)
    assert site.evicted == [] and not site.preemptions.under_way


def test_a_new_pod_that_makes_the_gang_larger_stops_its_preemption() -> None:
    site = full_nodes(1, 2)
    site.gang("gang", 2, GPUS)
    begun(site).gang("gang", 4, GPUS, numbers=[2])
    site.settle(4)
    assert site.evicted == [] and not site.preemptions.under_way


def test_nobody_ends_for_a_pod_that_may_no_longer_go_to_its_place() -> None:
    """As long as a pod has a gate, its node selector may become narrower."""
    site = full_nodes(1, 2)
    site.gang("gang", 2, GPUS)
    begun(site).world.patch(PODS, "gang-1", {"spec": {"nodeSelector": {"zone": "elsewhere"}}})
    site.settle(4)
    assert site.evicted == []


def test_pods_of_one_gang_may_want_different_domains() -> None:
    """The first pod's words count, in the plan and at each eviction."""
    site = full_nodes(1, 2)
    site.gang("gang", 2, GPUS)
    site.world.patch(PODS, "gang-1", {"metadata": {"annotations": {keys.GROUP_AFFINITY: "rack"}}})
    site.settle(4)
    assert sorted(site.evicted) == ["p1", "p2"]


def test_a_gang_does_not_end_its_own_pods() -> None:
    """One of them runs already, and is less important than those that wait."""
    site = PreemptionSite(2)
    site.gang("gang", 2, GPUS, priority=10, least=1, numbers=[0])
    site.settle(2)
    assert site.node_of("gang-0")
    site.running("other", GPUS, priority=200)
    site.gang("gang", 2, GPUS, least=2, numbers=[1])
    site.settle(8)
    assert site.evicted == []


def test_an_incomplete_gang_preempts_nobody() -> None:
    site = full_nodes(1, 2)
    site.gang("gang", 2, GPUS, numbers=[0])
    site.settle(8)
    assert site.evicted == []


def test_a_gang_with_a_pod_that_never_preempts_preempts_nobody() -> None:
    site = full_nodes(1, 2)
    site.gang("gang", 2, GPUS, numbers=[0])
    site.gang("gang", 2, GPUS, numbers=[1], preemptionPolicy="Never")
    site.settle(8)
    assert site.evicted == []


def test_a_gang_ends_only_so_many_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_victims, "MOST_VICTIMS", 3)
    site = halves(2, 0, 0, 0, 0)
    site.gang("gang", 2, GPUS)
    assert search(site) is NoVictims.TOO_MANY


def test_one_namespace_has_pods_end_for_so_many_pods_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods of a gang count: for each of them GPUs are held."""
    monkeypatch.setattr(preempting, "MOST_OF_NAMESPACE", 2)
    site = full_nodes(1, 2, 3)
    site.kubelet_works = False
    site.gang("gang", 2, GPUS)
    site.settle(5)
    assert sorted(site.evicted) == ["p1", "p2"]
    site.create("single", GPUS, priority=100)
    site.settle(4)
    assert sorted(site.evicted) == ["p1", "p2"]
    site.kubelet_works = True
    site.settle(6)
    assert sorted(site.evicted) == ["p1", "p2", "p3"]


def test_thousands_of_pods_that_come_first_hide_no_others() -> None:
    site = full_nodes(1)
    site.create("single", GPUS, priority=100)
    site.ticks(1)
    uid, turns = site.pod("single").metadata.uid, site.preemptions.turns
    others = map(str, range(10_000))
    unit = finish(turns.next_waiting([*others, uid], lambda _: None, {}, Instant(0.0, 0.0)))
    assert unit is not None and unit.key == uid


def test_an_elastic_gang_starts_with_as_many_as_get_room() -> None:
    """One of two is enough for it, and the pod of the other node is more important."""
    site = full_nodes(1, 200)
    site.gang("gang", 2, GPUS, least=1)
    site.settle(8)
    assert site.evicted == ["p1"] and [site.node_of(f"gang-{number}") for number in range(2)].count(None) == 1
