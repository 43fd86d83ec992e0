"""Where many nominations come to nothing, none is made for a while."""

from __future__ import annotations

from extender.steering.worth import ENOUGH, FIRST_PAUSE_SECONDS, LOOKED_AT, Worth


def told(worth: Worth, *ends: bool, now: float = 100.0) -> float:
    """Tell of so many that ended; returns how long the pause is."""
    for came_true in ends:
        worth.ended(now, came_true=came_true)
    return worth.paused_until - now


def test_a_few_in_vain_are_nothing() -> None:
    """Rules that are not read here cost a try now and then."""
    assert told(Worth(), *[False] * (ENOUGH - 1)) < 0
    assert told(Worth(), *[True, True, True, False] * LOOKED_AT) < 0


def test_many_in_vain_bring_a_pause_that_doubles() -> None:
    """Until as many as are looked at have all come true."""
    worth = Worth()
    assert told(worth, *[False] * ENOUGH) == FIRST_PAUSE_SECONDS
    assert told(worth, *[False] * ENOUGH, now=500.0) == 2 * FIRST_PAUSE_SECONDS
    told(worth, *[True] * LOOKED_AT, now=1000.0)
    assert told(worth, *[False] * (LOOKED_AT // 4 + 1), now=1000.0) == FIRST_PAUSE_SECONDS
