"""Where many nominations of a namespace come to nothing, none is made there for a while; elsewhere they go on."""

from __future__ import annotations

from extender.features.steering.nomination_breaker import ENOUGH, FIRST_PAUSE_SECONDS, LOOKED_AT, NominationBreaker


def told(worth: NominationBreaker, *ends: bool, now: float = 100.0) -> float:
    """Tell of so many that ended in one namespace; returns how long its pause is."""
    for came_true in ends:
        worth.ended("ml", now, came_true=came_true)
    return worth.paused_until_in("ml") - now


def test_a_few_in_vain_are_nothing() -> None:
    """Rules that are not read here cost a try now and then."""
    assert told(NominationBreaker(), *[False] * (ENOUGH - 1)) < 0
    assert told(NominationBreaker(), *[True, True, True, False] * LOOKED_AT) < 0


def test_many_in_vain_bring_a_pause_that_doubles() -> None:
    """Until as many as are looked at have all come true."""
    worth = NominationBreaker()
    assert told(worth, *[False] * ENOUGH) == FIRST_PAUSE_SECONDS
    assert told(worth, *[False] * ENOUGH, now=500.0) == 2 * FIRST_PAUSE_SECONDS
    told(worth, *[True] * LOOKED_AT, now=1000.0)
    assert told(worth, *[False] * (LOOKED_AT // 4 + 1), now=1000.0) == FIRST_PAUSE_SECONDS


def test_one_tenant_switches_steering_off_for_itself_alone() -> None:
    """However many of its nominations come to nothing, beside few of others or many."""
    worth = NominationBreaker()
    for number in range(10 * LOOKED_AT):
        worth.ended("evil", 100.0, came_true=False)
        worth.ended(f"good-{number % 5}", 100.0, came_true=True)
    assert worth.paused_until_in("evil") > 100.0
    assert max(worth.paused_until, *(worth.paused_until_in(f"good-{number}") for number in range(5))) == 0.0


def test_nominations_in_vain_in_many_namespaces_pause_all() -> None:
    """Something else is wrong then. Each namespace has one vote."""
    worth = NominationBreaker()
    for number in range(ENOUGH):
        assert worth.paused_until == 0.0
        worth.ended(f"t{number}", 100.0, came_true=False)
    assert worth.paused_until == 100.0 + FIRST_PAUSE_SECONDS
