"""From when on a report is about a pod: not from the first look that may have begun before it."""

from __future__ import annotations

import pytest

from extender.cluster.ownership.sightings import Sightings

EARLIER, OWN = frozenset({"GPU-0"}), frozenset({"GPU-1"})


@pytest.mark.parametrize(("looks", "is_about_it"), [(0, False), (1, False), (2, True), (3, True)])
def test_an_entry_that_stays_the_same_counts_after_two_more_looks(looks: int, *, is_about_it: bool) -> None:
    """The first of them may have been under way when the pod was bound."""
    sightings = Sightings()
    assert not sightings.is_about("p", EARLIER, 7)
    assert sightings.is_about("p", EARLIER, 7 + looks) is is_about_it


def test_another_entry_counts_at_once() -> None:
    """What was there before has changed, so this is news."""
    sightings = Sightings()
    assert not sightings.is_about("p", EARLIER, 7)
    assert sightings.is_about("p", OWN, 7)


def test_what_counts_goes_on_counting() -> None:
    """Even if the pod comes to hold what the one before it held, or its agent counts anew."""
    sightings = Sightings()
    sightings.is_about("p", EARLIER, 7)
    sightings.is_about("p", OWN, 8)
    assert sightings.is_about("p", EARLIER, 8)
    assert sightings.is_about("p", EARLIER, 1)


def test_an_agent_that_counts_anew_is_waited_for_anew() -> None:
    """Its numbers say nothing beside those of the one before."""
    sightings = Sightings()
    sightings.is_about("p", EARLIER, 7)
    assert not sightings.is_about("p", EARLIER, 2)
    assert not sightings.is_about("p", EARLIER, 3)
    assert sightings.is_about("p", EARLIER, 4)


def test_each_pod_is_counted_for_itself_and_anew_once_it_is_forgotten() -> None:
    """A UID that is forgotten may be heard of again from an older list."""
    sightings = Sightings()
    sightings.is_about("p", EARLIER, 7)
    assert not sightings.is_about("q", EARLIER, 9)
    sightings.forget("p")
    sightings.forget("never heard of")
    assert not sightings.is_about("p", EARLIER, 9)
