"""From when on a report is about a pod: not from the first look that may have begun before it."""

from __future__ import annotations

import pytest

from extender.cluster.ownership.first_reports import FirstReports

EARLIER, OWN = frozenset({"GPU-0"}), frozenset({"GPU-1"})


@pytest.mark.parametrize(("more", "is_about_it"), [(0, False), (1, False), (2, True), (3, True)])
def test_an_entry_that_stays_the_same_counts_after_two_more_reports(more: int, *, is_about_it: bool) -> None:
    """The first of them may have been under way when the pod was bound."""
    first_reports = FirstReports()
    assert not first_reports.is_about("p", EARLIER, 7)
    assert first_reports.is_about("p", EARLIER, 7 + more) is is_about_it


def test_another_entry_counts_at_once() -> None:
    """What was there before has changed, so this is news."""
    first_reports = FirstReports()
    assert not first_reports.is_about("p", EARLIER, 7)
    assert first_reports.is_about("p", OWN, 7)


def test_what_counts_goes_on_counting() -> None:
    """Even if the pod comes to hold what the one before it held, or its agent counts anew."""
    first_reports = FirstReports()
    first_reports.is_about("p", EARLIER, 7)
    first_reports.is_about("p", OWN, 8)
    assert first_reports.is_about("p", EARLIER, 8)
    assert first_reports.is_about("p", EARLIER, 1)


def test_an_agent_that_counts_anew_is_waited_for_anew() -> None:
    """Its numbers say nothing beside those of the one before."""
    first_reports = FirstReports()
    first_reports.is_about("p", EARLIER, 7)
    assert not first_reports.is_about("p", EARLIER, 2)
    assert not first_reports.is_about("p", EARLIER, 3)
    assert first_reports.is_about("p", EARLIER, 4)


def test_each_pod_is_counted_for_itself_and_anew_once_it_is_forgotten() -> None:
    """A UID that is forgotten may be heard of again from an older list."""
    first_reports = FirstReports()
    first_reports.is_about("p", EARLIER, 7)
    assert not first_reports.is_about("q", EARLIER, 9)
    first_reports.forget("p")
    first_reports.forget("never heard of")
    assert not first_reports.is_about("p", EARLIER, 9)
