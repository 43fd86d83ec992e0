"""A consistent list counts for the ledgers that were lost before it was asked for, and for nobody else."""

from __future__ import annotations

import pytest

from extender.cluster.objects.payloads import Payload
from extender.cluster.ownership import fences as module
from extender.cluster.ownership.fences import MAX_NAMES, Fences, Obstacle
from tests.extender.builders import cluster, node, pod
from topology.annotations.records import Ledger

GARBLED: Payload[Ledger] = Payload("{")
AGAIN: Payload[Ledger] = Payload("{")


def test_what_left_one_list_says_nothing_of_the_next() -> None:
    """Two nodes are repaired side by side, and the second one has asked for a list of its own meanwhile."""
    fences, listed, again = Fences(), pod("p", version=1), pod("p", version=2)
    fences.lost("n1", GARBLED)
    fences.listed(fences.now(), [listed])
    fences.lost("n1", AGAIN)
    fences.listed(fences.now(), [again])
    fences.left(listed)
    assert fences.is_needed("n1")
    fences.left(again)
    assert not fences.is_needed("n1")


def test_a_list_of_nobody_is_done_at_once() -> None:
    """No pod waits, so nobody is bound late."""
    fences = Fences()
    fences.lost("n1", GARBLED)
    fences.listed(fences.now(), [])
    assert not fences.is_needed("n1")


def test_a_live_reply_that_shows_the_same_damage_is_news() -> None:
    """The ledger may have been whole in a version that the watch will tell too late."""
    state = cluster(node())
    state.nodes.changed(node(version=2, ledger="{"))
    state.refresh()
    state.fences.listed(state.fences.now(), [])
    state.nodes.changed(node(version=3, ledger="{"))
    state.refresh()
    assert not state.fences.is_needed("n1")
    state.nodes.learn(node(version=5, ledger="{"))
    state.refresh()
    assert state.fences.is_needed("n1")


def test_a_departure_is_forgotten_with_the_next_list() -> None:
    """Names come and go for years; what is kept of them is what no list has covered yet, up to a limit."""
    fences = Fences()
    fences.lost("n1", None)
    fences.missed("n1")
    assert fences.is_needed("n1")
    fences.listed(fences.now(), [])
    assert not fences.is_needed("n1")
    fences.missed("n2")
    assert not fences.is_needed("n1")


def test_more_departures_than_are_kept_count_for_every_name() -> None:
    """No name is forgotten before a list: it is as if the node had left just now."""
    fences = Fences()
    fences.listed(fences.now(), [])
    fences.lost("n1", None)
    for number in range(MAX_NAMES):
        fences.missed(f"gone-{number}")
        assert not fences.is_needed("n1")
    fences.missed("one-more")
    assert fences.is_needed("n1")
    fences.lost("gone-0", None)
    assert fences.is_needed("gone-0")


def test_a_node_without_a_ledger_is_in_doubt_until_the_first_list() -> None:
    """It may have had one before this process began."""
    fences = Fences()
    fences.lost("n1", None)
    assert fences.is_needed("n1")
    fences.listed(fences.now(), [])
    assert not fences.is_needed("n1")


def test_a_list_says_nothing_of_a_ledger_that_was_lost_after_it_was_asked_for() -> None:
    """Another damage is another loss; the same one is not."""
    fences = Fences()
    for first, second, is_needed in ((GARBLED, GARBLED, False), (GARBLED, AGAIN, True)):
        fences.lost("n1", first)
        sent = fences.now()
        fences.lost("n1", second)
        fences.listed(sent, [])
        assert fences.is_needed("n1") is is_needed
    fences.listed(fences.now(), [])
    assert not fences.is_needed("n1")
    fences.lost("n2", GARBLED)
    assert fences.is_needed("n2")


def test_a_gap_in_what_was_heard_counts_for_every_name() -> None:
    """Until the next list."""
    fences = Fences()
    fences.listed(fences.now(), [])
    fences.lost("n1", None)
    assert not fences.is_needed("n1")
    fences.missed()
    assert fences.is_needed("n1")
    fences.listed(fences.now(), [])
    assert not fences.is_needed("n1")


def test_what_is_kept_of_departures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names come and go before the next list."""
    monkeypatch.setattr(module, "MAX_NAMES", 10)
    fences = Fences()
    for number in range(100):
        fences.missed(f"gone-{number}")
    assert max(len(kept) for kept in vars(fences).values() if isinstance(kept, dict)) <= 10


def test_a_pod_that_could_not_be_fenced_comes_after_all_others() -> None:
    """One that cannot be fenced must not keep the others waiting. What is said of an earlier version changes no order."""
    fences = Fences()
    pods = first, second, third = pod("a"), pod("b"), pod("c")
    fences.listed(fences.now(), pods)
    fences.stays(pod("a"), "not this version")
    assert fences.to_fence == pods
    fences.stays(first, "refused")
    assert fences.to_fence == (second, third, first)


def test_obstacles_are_said_once_and_by_name() -> None:
    """The last reason of each pod; a list that failed is of no pod."""
    fences, waiting = Fences(), pod("a")
    fences.listed(fences.now(), [waiting])
    for reason in "first", "last":
        fences.stays(waiting, reason)
    fences.not_listed("the API server is away")
    obstacles = fences.take_obstacles()
    assert obstacles == (Obstacle(waiting, "last"), Obstacle(None, "the API server is away"))
    assert [obstacle.name for obstacle in obstacles] == ["ml/a", ""]
    assert fences.take_obstacles() == ()


def test_a_node_that_left_after_the_list_was_asked_for_is_in_doubt() -> None:
    """The list may be older than the claims of its last ledger."""
    fences = Fences()
    sent = fences.now()
    fences.missed("n1")
    fences.listed(sent, [])
    fences.lost("n1", None)
    assert fences.is_needed("n1")


def test_departures_that_a_list_has_covered_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only more departures than are kept between two lists count for every name."""
    monkeypatch.setattr(module, "MAX_NAMES", 10)
    fences = Fences()
    fences.lost("n1", None)
    for number in range(20):
        fences.listed(fences.now(), [])
        fences.missed(f"gone-{number}")
        assert not fences.is_needed("n1")
