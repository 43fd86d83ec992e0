"""Pauses double with each failure in a row, and what is remembered of failures is bounded."""

from __future__ import annotations

import pytest

from extender.kit.backoff import Backoff, Pauses


def test_pauses_double_up_to_the_longest() -> None:
    """The first failure brings the first pause."""
    pauses = Pauses(10.0, 60.0)
    assert [pauses.after(failures) for failures in range(6)] == [0.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_tolerated_failures_bring_no_pause() -> None:
    """One failure alone may have been a race."""
    pauses = Pauses(10.0, 60.0, tolerated=2)
    assert [pauses.after(failures) for failures in range(5)] == [0.0, 0.0, 0.0, 10.0, 20.0]


def test_days_of_failures_do_not_overflow() -> None:
    """At 120 s a pause, 1100 failures are a day and a half."""
    assert Pauses(5.0, 120.0).after(1100) == 120.0


@pytest.mark.parametrize(("random", "seconds"), [(0.0, 20.0), (0.5, 30.0), (1.0, 40.0)])
def test_jitter_shortens_a_pause_by_half_at_most(random: float, seconds: float) -> None:
    """Thousands of clients that failed together do not retry together."""
    assert Pauses(10.0, 60.0, random=lambda: random).after(3) == seconds


def test_each_key_has_its_own_pause() -> None:
    """It begins with the failure, and success forgets it."""
    backoff = Backoff(Pauses(10.0, 60.0))
    assert [backoff.failed("a", 0.0), backoff.failed("a", 10.0)] == [10.0, 20.0]
    assert not backoff.may_begin("a", 29.9) and backoff.may_begin("a", 30.0) and backoff.may_begin("b", 0.0)
    assert (backoff.failures("a"), backoff.not_before("a")) == (2, 30.0)
    backoff.forget("a")
    assert backoff.may_begin("a", 0.0)
    assert backoff.failed("a", 0.0) == 10.0


def test_what_is_given_up_never_begins_until_it_is_forgotten() -> None:
    """The failures stay counted."""
    backoff = Backoff(Pauses(10.0, 60.0))
    backoff.failed("a", 0.0)
    backoff.give_up("a")
    assert not backoff.may_begin("a", 1e12) and backoff.failures("a") == 1
    backoff.forget("a")
    assert backoff.may_begin("a", 0.0)


def test_only_what_still_waits_is_remembered() -> None:
    """The other keys begin from nothing."""
    backoff = Backoff(Pauses(10.0, 60.0))
    for key in "abcd":
        backoff.failed(key, 0.0)
    backoff.keep_only({"b", "unknown"}, {"d": "of another place"})
    assert [backoff.failures(key) for key in "abcd"] == [0, 1, 0, 1]
    assert len(backoff) == 2


def test_a_tenant_with_many_failures_pushes_out_its_own() -> None:
    """The oldest of its keys is forgotten, and no other tenant's."""
    backoff = Backoff(Pauses(10.0, 60.0), limit=3)
    backoff.failed("good", 0.0, "good")
    for number in range(100):
        backoff.failed(f"evil{number}", 0.0, "evil")
    assert len(backoff) == 3
    assert not backoff.may_begin("good", 1.0) and not backoff.may_begin("evil99", 1.0)
    assert backoff.may_begin("evil97", 0.0)
