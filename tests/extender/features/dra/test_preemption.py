"""A pod with claims that finds no room ends pods of lower priority, and gets their devices once these are deallocated."""

from __future__ import annotations

import asyncio
from time import time
from typing import Any

from benchmarks.simulated.double.resources import PODS
from extender.features.dra import preempting, preemption
from extender.kit.clock import Instant
from extender.kubernetes.rest import Request
from extender.planning.reservations import Reservation
from tests.extender.features.dra.preemption_site import GPUS, PreemptionSite

FULL = frozenset(f"gpu-{number}" for number in range(GPUS))


def full_site(**more: Any) -> PreemptionSite:
    """Return one node whose GPUs a pod of priority 0 has."""
    site = PreemptionSite()
    site.running("low", GPUS, **more)
    return site


def test_it_gets_the_devices_of_its_victim_after_their_deallocation_and_not_before() -> None:
    """A pod that is ending keeps its claim: an allocation by then would give a device to two pods, which the site checks."""
    site = full_site()
    site.kubelet_works = False
    site.create("high", GPUS, priority=100)
    site.settle()
    assert site.evicted == ["low"] and site.allocations() == {"low-c0": ("n0", FULL)}
    assert site.preemptions.words_of(site.waiting("high")) == "waits for 1 victim on n0 to end"
    site.kubelet_works = True
    site.settle()
    assert site.node_of("high") == "n0" and site.allocations() == {"high-c0": ("n0", FULL)}
    assert not site.preemptions.under_way
    assert site.recorder.of("Preempted") == [("low", "Preempted by default/high on node n0")]
    assert site.recorder.of("GPUPodWaitsForVictims") == [("high", "waits for 1 victim on n0 to end")]


def test_no_other_pod_takes_what_the_victims_give_back() -> None:
    """Not even one that would need fewer GPUs, and comes before the waiting pod has its place."""
    site = full_site()
    site.kubelet_works = False
    site.create("high", GPUS, priority=100)
    site.settle(3)
    site.create("small", 1, priority=50)
    site.kubelet_works = True
    site.settle()
    assert site.node_of("high") == "n0" and site.node_of("small") is None


def test_what_less_important_pods_that_are_ending_give_back_is_held_too() -> None:
    """Others that fit into the first of it would have to end again: as after a planner has died that evicted them."""
    site = PreemptionSite()
    for name in ("first", "second"):
        site.running(name, GPUS // 2)
    site.preemptions.clock = lambda: Instant(site.seconds, time())  # the double has the time of day
    site.kubelet_works = False
    for name in ("first", "second"):
        site.world.delete(name)
    site.create("high", GPUS, priority=100)
    site.settle()
    assert site.preemptions.words_of(site.waiting("high")) == "waits for 2 victims on n0 to end"
    site.create("small", 1)
    site.end("first")
    site.settle()
    assert site.node_of("small") is None
    site.kubelet_works = True
    site.settle()
    assert site.node_of("high") == "n0" and not site.evicted


def test_nobody_ends_for_a_pod_of_equal_priority_or_one_that_never_preempts() -> None:
    site = full_site()
    site.create("equal", 1)
    site.create("never", 1, priority=100, preemptionPolicy="Never")
    site.settle(8)
    assert site.evicted == [] and site.node_of("low") == "n0"


def test_a_budget_that_the_watch_has_not_shown_yet_keeps_all_victims_and_the_pod_says_so() -> None:
    """All evictions are tried before the first of them is carried out."""
    site = PreemptionSite()
    site.running("free", GPUS // 2)
    site.running("kept", GPUS // 2, labels={"app": "kept"})
    site.budget("kept", allowed=0)
    site.planner.state.budgets.replaced([])
    site.create("high", GPUS, priority=100)
    site.settle()
    why = "no pod is preempted for it: a PodDisruptionBudget protects pods that would have to end"
    assert site.evicted == [] and site.preemptions.words_of(site.waiting("high")) == why
    assert ("high", why) in site.recorder.of("GPUPodPreemptsNone")


def test_victims_that_do_not_end_in_time_give_the_preemption_up() -> None:
    """Then nothing is held any more for the pod, which says why."""
    site = full_site(terminationGracePeriodSeconds=10)
    site.kubelet_works = False
    site.create("high", GPUS, priority=100)
    site.settle(3)
    assert site.preemptions.under_way and site.planner.state.holds.firm(site.seconds)
    site.seconds += preempting.MARGIN_SECONDS + 10.0
    site.settle(1)
    assert not site.preemptions.under_way and not site.planner.state.holds.firm(site.seconds)
    assert [note for _, note in site.recorder.of("GPUPodPreemptsNone")] == [
        "no pod is preempted for it: its victims have not ended in time"
    ]


def test_a_replica_that_no_longer_plans_evicts_nobody_and_holds_nothing() -> None:
    site = full_site()
    site.create("high", GPUS, priority=100)
    site.settle(1)
    while not site.preemptions.under_way:
        site.settle(1)
    site.is_leader = False
    site.settle()
    assert site.evicted == [] and not site.preemptions.under_way
    assert not site.planner.state.holds.firm(site.seconds)


def test_nobody_ends_for_a_pod_that_is_gone_by_the_time_of_the_eviction() -> None:
    """The watch may be behind, so the pod is read live."""
    site = full_site()
    site.create("high", GPUS, priority=100)
    while not site.preemptions.under_way:
        site.settle(1)
    site.world.delete("high", 0)
    asyncio.run(site.preemptions.follow())  # the watch has not shown the deletion yet
    assert site.evicted == [] and site.node_of("low") == "n0"


def test_a_pod_that_could_not_run_where_it_preempted_does_not_preempt_on_the_next_node() -> None:
    """kube-scheduler has a reason that may hold everywhere."""
    site = PreemptionSite(2)
    for name in ("low", "low-too"):
        site.running(name, GPUS)
    site.unfit = {"n0", "n1"}
    site.create("high", GPUS, priority=100)
    site.settle(12)
    assert site.undone and len(site.evicted) == 1


def test_a_pod_that_can_run_nowhere_does_not_preempt_the_successor_of_its_victim() -> None:
    """The node steps back from it for half a minute only, and then it would preempt for ever."""
    site = full_site()
    site.unfit_pods = {"high"}
    site.create("high", GPUS, priority=100)
    while not site.undone:
        site.settle(1)
    assert site.evicted == ["low"]
    site.create("successor", GPUS)
    site.settle(40)
    assert site.evicted == ["low"] and site.node_of("successor") == "n0"
    site.seconds += preempting.AGAIN.first_seconds
    site.settle()
    assert site.evicted == ["low", "successor"]


def test_a_replica_that_has_just_begun_to_plan_preempts_nobody() -> None:
    """Other nodes may be about to be schedulable."""
    site = full_site()
    site.is_leader = False
    site.settle(1)
    site.create("high", GPUS, priority=100)
    site.is_leader = True
    site.settle(int(preemption.SETTLED_SECONDS / 2.0))  # a tick is 2 s
    assert not site.preemptions.under_way
    site.settle(2)
    assert site.preemptions.under_way


def test_a_victim_that_changes_all_the_time_ends_all_the_same() -> None:
    """Its owner may write annotations many times a second, and nothing that counts here can change."""
    site = full_site()
    send = site.preemptions.send

    async def changing(request: Request) -> tuple[int, bytes]:
        site.world.patch(PODS, "low", {"metadata": {"annotations": {"beat": str(site.seconds)}}})
        return await send(request)

    site.preemptions.send = changing
    site.create("high", GPUS, priority=100)
    site.settle(8)
    assert site.evicted == ["low"]


def test_what_the_queue_has_kept_of_a_place_by_an_older_plan_ends_no_preemption() -> None:
    """Its plan was being made while the GPUs were reserved."""
    site = full_site()
    site.create("high", GPUS, priority=100)
    while not site.preemptions.under_way:
        site.settle(1)
    (preemption,) = site.preemptions.under_way.values()
    target = preemption.victims.targets[0]
    site.planner.queue.turns.reservation = Reservation("a gang", "default", (target,), None)
    asyncio.run(site.preemptions.follow())
    assert site.evicted == ["low"] and site.preemptions.under_way


def test_a_pod_whose_eviction_is_refused_is_spared_and_others_end() -> None:
    """A policy may refuse it, or a budget that nobody here counts; else one such pod would keep all others from ending."""
    site = PreemptionSite(2)
    site.running("protected", GPUS, labels={"app": "protected"})
    site.running("low", GPUS, priority=5)
    site.budget("protected")
    site.planner.state.budgets.replaced([])
    place = site.node_of("low")
    site.create("high", GPUS, priority=100)
    site.settle(12)
    assert site.evicted == ["low"] and site.node_of("high") == place


def test_victims_are_evicted_while_others_are_searched() -> None:
    """A search among all nodes of a large cluster takes seconds."""
    site = PreemptionSite(2)
    for name in ("low", "low-too"):
        site.running(name, GPUS)
    site.create("high", GPUS, priority=100)
    while not site.preemptions.under_way:
        site.settle(1)
    send, is_searching, may_go_on = site.preemptions.send, asyncio.Event(), asyncio.Event()

    async def slowly(request: Request) -> tuple[int, bytes]:
        if "dryRun" in request.path:
            is_searching.set()
            await may_go_on.wait()
        return await send(request)

    async def run() -> None:
        searching = asyncio.create_task(site.preemptions.begin_next())
        await is_searching.wait()
        await site.preemptions.follow()
        assert len(site.evicted) == 1
        may_go_on.set()
        await searching

    site.preemptions.send = slowly
    site.create("high-too", GPUS, priority=100)
    site.ticks(2)
    asyncio.run(run())
    site.preemptions.send = send
    site.settle()
    assert site.node_of("high") and site.node_of("high-too")
