"""Pods without room are remembered since when they have none, in a table that namespaces share."""

from __future__ import annotations

from extender.features.autoscaling.without_room import WithoutRoom
from topology.effort import finish


def test_a_pod_waits_since_the_first_plan_without_room_for_it() -> None:
    """A later plan that finds none either changes nothing; one that finds room ends it."""
    pods = WithoutRoom()
    finish(pods.update({"a": "ml"}, 1.0))
    finish(pods.update({"a": "ml", "b": "ml"}, 2.0))
    assert (pods.since("a"), pods.since("b")) == (1.0, 2.0)
    finish(pods.update({"b": "ml"}, 3.0))
    assert (pods.since("a"), pods.since("b")) == (None, 2.0)


def test_namespaces_take_turns() -> None:
    """However many pods one of them has."""
    pods = WithoutRoom(limit=4)
    finish(pods.update({f"a{number}": "a" for number in range(9)} | {"b": "b"}, 0.0))
    first, second = pods.in_turn(2)
    assert {first[0], second} == {"a", "b"}
    assert pods.since("b") == 0.0
