"""Whose turn it is to get room: namespaces take turns, and none has all plans."""

from __future__ import annotations

from msgspec.structs import replace

from extender.cluster.objects.kinds import Pod
from extender.features.moves.candidates import WaitingTurns
from extender.features.moves.limits import MoveLimits
from extender.features.moves.settings import MovesSettings
from tests.extender.builders import PAIRS, at, cluster, node, pod
from topology.annotations import keys
from topology.effort import finish


def waits(name: str, namespace: str = "ml", **wants: str) -> Pod:
    item = pod(name, 2, wants=wants)
    spec = replace(item.spec, scheduling_gates=[{"name": keys.PLAN_GATE}])
    return replace(item, metadata=replace(item.metadata, namespace=namespace), spec=spec)


def turn(*pods: Pod, under_way: dict[str, str] | None = None, at_once: int = 4) -> str | None:
    """Return the pod whose turn it is, of those without room."""
    state = cluster(node("a", PAIRS), *pods)
    settings = MovesSettings.model_validate({"after": "0s", "atOnce": at_once})
    turns = WaitingTurns(state, settings, MoveLimits(settings))
    uids = [item.metadata.uid for item in pods if item.spec.scheduling_gates]
    chosen = finish(turns.next_pod(uids, under_way or {}, at(600.0)))
    return chosen.uid if chosen else None


def test_half_of_the_plans_at_most_are_for_one_namespace() -> None:
    """At least one plan is: where one goes on at a time, namespaces take turns."""
    greedy, modest = waits("w3"), waits("modest", "other")
    assert turn(greedy, modest, under_way={"w1": "ml"}) == "w3"
    assert turn(greedy, modest, under_way={"w1": "ml", "w2": "ml"}) == "modest"
    assert turn(greedy, under_way={"w1": "ml", "w2": "ml"}) is None
    assert turn(greedy, at_once=1) == "w3"
    assert turn(greedy, under_way={"w1": "ml"}, at_once=3) is None


def test_no_room_is_made_for_a_pod_for_which_a_node_is_on_its_way() -> None:
    """A placeholder asks for one; room is made once that has gone."""
    placeholder = pod("placeholder", 2, wants={keys.PLACEHOLDER_FOR: "ml/waits/waits"})
    assert turn(waits("waits"), placeholder) is None
    assert turn(waits("waits")) == "waits"
