"""Whose turn it is to get room: namespaces take turns, and none has all plans."""

from __future__ import annotations

from msgspec.structs import replace

from extender.cluster.objects.kinds import Pod
from extender.features.moves.candidates import MOST_MEMBERS, PAUSE_SECONDS, WaitingTurns
from extender.features.moves.limits import MoveLimits
from extender.features.moves.settings import MovesSettings
from tests.extender.builders import PAIRS, at, cluster, node, pod
from tests.extender.features.queue.queued import of_gang, read
from tests.extender.mig import slice_pod
from tests.extender.shares import sharer
from topology.annotations import keys
from topology.effort import finish


def waits(name: str, namespace: str = "ml", **wants: str) -> Pod:
    item = pod(name, 2, wants=wants)
    spec = replace(item.spec, scheduling_gates=[{"name": keys.PLAN_GATE}])
    return replace(item, metadata=replace(item.metadata, namespace=namespace), spec=spec)


def turn(*pods: Pod, under_way: dict[str, str] | None = None, at_once: int = 4) -> str | None:
    """Return the key of what has its turn, of what has no room."""
    state = cluster(node("a", PAIRS), *pods)
    settings = MovesSettings.model_validate({"after": "0s", "atOnce": at_once})
    turns = WaitingTurns(state, settings, MoveLimits(settings))
    uids = [item.metadata.uid for item in pods if item.spec.scheduling_gates]
    gangs = [unit for unit in read(state).units if unit.is_gang]
    gang_of = {member.pod.metadata.uid: gang for gang in gangs for member in gang.members}.get
    chosen = finish(turns.next_unit(uids, gang_of, under_way or {}, at(600.0)))
    return chosen.key if chosen else None


def test_half_of_the_plans_at_most_are_for_one_namespace() -> None:
    """At least one plan is: where one goes on at a time, namespaces take turns."""
    greedy, modest = waits("w3"), waits("modest", "other")
    assert turn(greedy, modest, under_way={"w1": "ml"}) == "w3"
    assert turn(greedy, modest, under_way={"w1": "ml", "w2": "ml"}) == "modest"
    assert turn(greedy, under_way={"w1": "ml", "w2": "ml"}) is None
    assert turn(greedy, at_once=1) == "w3"
    assert turn(greedy, under_way={"w1": "ml"}, at_once=3) is None


def test_a_plan_that_comes_true_ends_the_pauses_of_its_owner() -> None:
    """An owner that lives for long would pause for the longest time after each single failure."""
    waiting, settings = waits("w"), MovesSettings.model_validate({"after": "0s"})
    turns = WaitingTurns(cluster(node("a", PAIRS), waiting), settings, MoveLimits(settings))

    def has_turn(seconds: float) -> bool:
        return finish(turns.next_unit([waiting.metadata.uid], lambda _: None, {}, at(seconds))) is not None

    for seconds in (100.0, 200.0, 300.0):
        turns.in_vain(waiting.metadata, at(seconds).monotonic)
    assert not has_turn(300.0 + PAUSE_SECONDS)
    turns.came_true(waiting.metadata)
    turns.in_vain(waiting.metadata, at(1000.0).monotonic)
    assert has_turn(1000.0 + PAUSE_SECONDS)


def test_pods_that_request_shares_or_slices_have_turns_as_well() -> None:
    """Whatever they request of GPUs."""
    for item in (sharer("w", 10), slice_pod("w", "1g.10gb", 2)):
        assert turn(replace(item, spec=replace(item.spec, scheduling_gates=[{"name": keys.PLAN_GATE}]))) == "w"


def test_no_room_is_made_for_a_pod_for_which_a_node_is_on_its_way() -> None:
    """A placeholder asks for one; room is made once that has gone."""
    placeholder = pod("placeholder", 2, wants={keys.PLACEHOLDER_FOR: "ml/waits/waits"})
    assert turn(waits("waits"), placeholder) is None
    assert turn(waits("waits")) == "waits"


def test_a_gang_has_one_turn_and_none_if_it_is_too_large() -> None:
    """Its key names it among the plans, however many pods it has."""
    small = [of_gang(f"g-{number}") for number in range(2)]
    key = turn(*small)
    assert key is not None
    assert turn(*small, under_way={key: "ml"}) is None
    count = MOST_MEMBERS + 1
    large = [of_gang(f"l-{number}", 1, size=count, group="l") for number in range(count)]
    assert turn(*large) is None
    assert turn(*large, *small) == key
