"""Pods without room are remembered since when they have none, in a table that namespaces share."""

from __future__ import annotations

from operator import length_hint

import pytest

from extender.features.autoscaling.without_room import AT_ONCE, WithoutRoom
from topology.effort import finish


def line(**namespaces: int) -> list[tuple[str, str]]:
    """Return so many pods of each namespace, one namespace after the other."""
    return [(f"{namespace}{number}", namespace) for namespace, count in namespaces.items() for number in range(count)]


def test_a_pod_waits_since_the_first_plan_without_room_for_it() -> None:
    """A later plan that finds none either changes nothing; one that finds room ends it."""
    pods = WithoutRoom()
    finish(pods.update([("a", "ml")], 1.0))
    finish(pods.update([("a", "ml"), ("b", "ml")], 2.0))
    assert (pods.since("a"), pods.since("b")) == (1.0, 2.0)
    finish(pods.update([("b", "ml")], 3.0))
    assert (pods.since("a"), pods.since("b")) == (None, 2.0)


def test_namespaces_take_turns() -> None:
    """However many pods one of them has."""
    pods = WithoutRoom(limit=4)
    finish(pods.update(line(a=9, b=1), 0.0))
    assert pods.in_turn(2) == ["a0", "b0"]


def test_a_pod_that_has_had_its_turn_waits_on() -> None:
    """Other namespaces come first, and the other pods of its own."""
    pods = WithoutRoom()
    finish(pods.update(line(a=2, b=1), 0.0))
    pods.to_back("a0")
    finish(pods.update(line(a=2, b=1), 1.0))
    assert (pods.in_turn(9), pods.since("a0")) == (["b0", "a1", "a0"], 0.0)


def test_the_first_pods_of_a_line_that_is_too_long_wait_for_longer_and_longer() -> None:
    """No update forgets them for those behind."""
    pods = WithoutRoom(limit=4)
    for now in range(3):
        finish(pods.update(line(a=9, b=1), float(now)))
    assert {uid: pods.since(uid) for uid in pods.in_turn(9)} == dict.fromkeys(["a0", "b0", "a1", "a2"], 0.0)


@pytest.mark.parametrize(
    ("limit", "namespaces", "expected"),
    [
        (4, {"a": 9, "b": 9}, {"a": 2, "b": 2}),
        (4, {"b": 1, "a": 9}, {"b": 1, "a": 3}),
        (5, {"a": 9, "b": 9}, {"a": 3, "b": 2}),
        (9, {"a": 9, "b": 2, "c": 3}, {"a": 4, "b": 2, "c": 3}),
        (2, {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1}),
        (9, {"a": 5, "b": 4}, {"a": 5, "b": 4}),
        (9, {}, {}),
    ],
)
def test_namespaces_share_the_table(limit: int, namespaces: dict[str, int], expected: dict[str, int]) -> None:
    """Each has an equal share at least, and gets what others leave of theirs."""
    pods = WithoutRoom(limit)
    finish(pods.update(line(**namespaces), 0.0))
    assert sorted(pods.in_turn(99)) == sorted(uid for uid, _ in line(**expected))


def test_a_long_queue_is_read_in_steps() -> None:
    """Calls have their turns in between."""
    left = iter(line(a=4 * AT_ONCE))
    before = length_hint(left)
    for _ in WithoutRoom(limit=10).update(left, 0.0):
        assert before - length_hint(left) <= AT_ONCE
        before = length_hint(left)
    assert before == 0
