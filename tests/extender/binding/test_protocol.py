"""Every fault at every step of a bind, alone and in pairs: no GPU is given twice, no claim is lost, and everything recovers.

Between any two steps others may act: a rival binds another pod, or the same one here or elsewhere; somebody deletes the pod, by
force or not, writes to it, takes back claims too early, breaks a GPU. Each request may be lost before or after it took effect, or
arrive long after everybody has given it up, and the process may die before or after it. The world checks INV1 and INV2 after
every write; INV3, INV5 and INV7 are checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import chain, cycle
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated.double.resources import PODS
from extender.binding.intents import BindPod, Intent, Reply
from extender.binding.outcome import Bound, Outcome
from extender.binding.release import ClaimTimers, release
from tests.extender.exploration import Choices, explore
from tests.extender.world import Crash, Replica, World, delay_request, deliver, drive
from tests.world.faults import Fault
from tests.world.http_faults import RequestFault
from topology.formats.catalog import machine

T = TypeVar("T")


def _nothing(_: World) -> None:
    pass


def _rival_binds_another_pod(world: World) -> None:
    Replica(world).bind("q")


def _rival_binds_the_same_pod_here(world: World) -> None:
    Replica(world).bind("p")


def _rival_binds_the_same_pod_elsewhere(world: World) -> None:
    Replica(world).bind("p", "n2")


def _pod_is_deleted(world: World) -> None:
    if world.find("p"):
        world.delete("p")


def _pod_is_replaced(world: World) -> None:
    if world.find("p"):
        world.delete("p", grace_period_seconds=0)
        world.add_pod("p")


def _pod_is_touched(world: World) -> None:
    if world.find("p"):
        world.touch("p")


def _pod_ends(world: World) -> None:
    if world.find("p"):
        world.set_status("p", "Failed")


def _claims_are_taken_back_without_patience(world: World) -> None:
    hasty = Replica(world)
    hasty.attention = ClaimTimers(orphan_seconds=0.0, unseen_seconds=0.0)
    hasty.reconcile(rounds=1)


def _gpu_breaks(world: World) -> None:
    world.report("n1", world.store.resource_version, machine(world.machine_name, host="n1").gpus[0].uuid)


def _late_requests_arrive(world: World) -> None:
    world.deliver_late()


EVENTS = (
    _nothing,
    _rival_binds_another_pod,
    _rival_binds_the_same_pod_here,
    _rival_binds_the_same_pod_elsewhere,
    _pod_is_deleted,
    _pod_is_replaced,
    _pod_is_touched,
    _pod_ends,
    _claims_are_taken_back_without_patience,
    _gpu_breaks,
    _late_requests_arrive,
)
NODES = ("n1", "n2", "n3")
DELIVERIES = (
    None,
    RequestFault.LOST_REPLY,
    RequestFault.LOST_REQUEST,
    Fault.LATE_REQUEST,
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
)


def _run(
    world: World, replica: Replica, steps: Generator[Intent, Reply, T], choices: Choices, *, follow: bool
) -> T | None:
    """Drive a piece of the protocol under the choices; `None`: the process died."""
    try:
        intent = next(steps)
        while True:
            choices.choose(EVENTS)(world)
            if follow:
                replica.catch_up()
            intent = steps.send(deliver(world, choices.choose(DELIVERIES), intent))
    except StopIteration as stop:
        result: T = stop.value
        return result
    except Crash:
        return None
    finally:
        steps.close()


def _check_outcome(world: World, outcome: Outcome | None, uid: str) -> None:
    """INV5: who was told that the pod is bound was told the truth."""
    found = world.find("p")
    if isinstance(outcome, Bound) and found and found["metadata"]["uid"] == uid:
        assert found["spec"].get("nodeName") == "n1"
        assert world.placed("p") == {gpu for gpus in outcome.containers.values() for gpu in gpus}


def _recover(world: World) -> None:
    """Faults are over: a fresh process settles all claims, and binds whatever is still pending."""
    world.deliver_late()
    fresh = Replica(world)
    fresh.reconcile()
    for node in NODES:
        world.report(node, world.store.resource_version + 1)
    fresh.reconcile()
    for item in world.store.list(PODS).items:
        if not item["spec"].get("nodeName") and item["status"].get("phase") == "Pending":
            outcomes = [fresh.bind(item["metadata"]["name"], node) for node in NODES]
            assert any(isinstance(outcome, Bound) for outcome in outcomes), "INV7: a pod for which there is room"
            fresh.reconcile()
    bound = {item["metadata"]["uid"] for item in world.store.list(PODS).items if item["spec"].get("nodeName")}
    for node in NODES:
        assert set(world.claims(node).values()) <= bound, "INV3: a claim without a pod"


def _scenario(*, follow: bool, machine_name: str) -> Callable[[Choices], None]:
    def run(choices: Choices) -> None:
        world = World(*NODES, machine_name=machine_name)
        uid = world.add_pod("p")["metadata"]["uid"]
        world.add_pod("q")
        replica = Replica(world)
        outcome = _run(world, replica, replica.start_bind("p"), choices, follow=follow)
        _check_outcome(world, outcome, uid)
        _recover(world)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("follow", [True, False], ids=["watching", "frozen cache"])
@pytest.mark.parametrize("machine_name", ["rtx-3090-2", "t4-4"])
def test_any_single_fault(machine_name: str, *, follow: bool) -> None:
    """Two GPUs, which two pods cannot share, and four, where the second choice is another set."""
    assert explore(_scenario(follow=follow, machine_name=machine_name), faults=1) > 30


def _orphan_is_left(world: World) -> None:
    """Leave a bind that has died while its Binding is still under way."""
    drive(Replica(world).start_bind("p"), delay_request(world, BindPod))


def _pod_has_ended(world: World) -> None:
    Replica(world).bind("p")
    world.set_status("p", "Succeeded", "terminated")


def _pod_was_deleted_by_force(world: World) -> None:
    Replica(world).bind("p")
    world.delete("p", grace_period_seconds=0)
    world.report("n1", 1)


def _release_scenario(before: Callable[[World], None], *, follow: bool) -> Callable[[Choices], None]:
    def run(choices: Choices) -> None:
        world = World(*NODES)
        world.add_pod("p")
        world.add_pod("q")
        before(world)
        replica = Replica(world)
        for _ in range(3):
            for task in ClaimTimers(orphan_seconds=0.0, unseen_seconds=0.0).due(replica.state, 0.0):
                _run(world, replica, release(replica.state, task), choices, follow=follow)
        _recover(world)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("before", [_orphan_is_left, _pod_has_ended, _pod_was_deleted_by_force])
@pytest.mark.parametrize("follow", [True, False], ids=["watching", "frozen cache"])
def test_any_single_fault_of_a_release(before: Callable[[World], None], *, follow: bool) -> None:
    """Whatever the claim is left from, it is taken back without taking anything from anybody."""
    assert explore(_release_scenario(before, follow=follow), faults=1) > 10


@pytest.mark.slow
@pytest.mark.parametrize("before", [_orphan_is_left, _pod_has_ended, _pod_was_deleted_by_force])
def test_any_two_faults_of_a_release(before: Callable[[World], None]) -> None:
    """The cache is frozen, which is the worse case here."""
    assert explore(_release_scenario(before, follow=False), faults=2) > 100


@pytest.mark.slow
@pytest.mark.parametrize("follow", [True, False], ids=["watching", "frozen cache"])
def test_any_two_faults(*, follow: bool) -> None:
    """Four GPUs, so that a re-choice is possible."""
    assert explore(_scenario(follow=follow, machine_name="t4-4"), faults=2) > 800


@pytest.mark.slow
@given(st.lists(st.integers(0, 5), max_size=80))
@settings(deadline=None, max_examples=100)
def test_six_binds_at_once(schedule: list[int]) -> None:
    """Three replicas, each asked to bind the same two pods; their requests reach the server in any order."""
    world = World(machine_name="t4-4")
    for name in ("p", "q"):
        world.add_pod(name)
    replicas = [Replica(world) for _ in range(3)]
    outcomes = _interleave(world, [replica.start_bind(name) for replica in replicas for name in ("p", "q")], schedule)
    bound = [outcome for outcome in outcomes if isinstance(outcome, Bound)]
    assert {len(world.placed(name)) for name in ("p", "q")} == {2}
    assert {frozenset(outcome.containers["main"]) for outcome in bound} == {world.placed("p"), world.placed("q")}


def _interleave(world: World, binds: list[Generator[Intent, Reply, Outcome]], schedule: list[int]) -> list[Outcome]:
    """Take one step of the bind whose turn it is; after the schedule the rest in turn."""
    waiting = {number: next(steps) for number, steps in enumerate(binds)}
    outcomes: list[Outcome] = []
    turns = chain(schedule, cycle(range(len(binds))))
    while waiting:
        number = next(turns)
        if number in waiting:
            try:
                waiting[number] = binds[number].send(world.execute(waiting[number]))
            except StopIteration as stop:
                outcomes.append(stop.value)
                del waiting[number]
    return outcomes
