"""A consistent list counts for the ledgers that were lost before it was asked for, and for nobody else."""

from __future__ import annotations

from extender.cluster.objects.payloads import Payload
from extender.cluster.ownership.fences import MAX_NAMES, Fences
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
