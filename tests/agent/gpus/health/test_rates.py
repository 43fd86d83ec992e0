"""How fast a counter rises is told from two looks, and from nothing less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.gpus.health.rates import Rates

READINGS = st.lists(
    st.tuples(st.floats(0, 1000), st.integers(0, 10**6), st.booleans()), max_size=30
)  # seconds since the one before, what came since, whether the driver was loaded anew


def test_the_first_reading_tells_nothing() -> None:
    """An agent that starts does not know when the errors came."""
    assert Rates(20.0).per_second("GPU-0", "replays", 10**9, 0.0) is None


def test_looks_that_follow_each_other_closely_are_one() -> None:
    """One error within a second is not sixty a minute."""
    rates = Rates(20.0)
    looks = ((0, 0), (1, 0), (2, 1), (19.9, 1), (40, 1), (60, 11))
    found = [rates.per_second("GPU-0", "replays", count, now) for now, count in looks]
    assert found == [None, None, None, None, 1 / 40, 0.5]


def test_a_counter_that_fell_counts_anew() -> None:
    """What came before the driver was loaded says nothing of now."""
    rates = Rates(20.0)
    found = [rates.per_second("GPU-0", "x", count, now) for now, count in ((0, 9000), (30, 5), (60, 35), (90, 35))]
    assert found == [None, None, 1.0, 0.0]
    found = [rates.per_second("GPU-1", "x", count, now) for now, count in ((0, 9000), (5, 0), (30, 50))]
    assert found == [None, None, 2.0]


def test_gpus_and_counters_do_not_mix() -> None:
    """Each has its own; one that is gone is forgotten."""
    rates = Rates(20.0)
    rates.per_second("GPU-0", "x", 0, 0.0)
    assert rates.per_second("GPU-1", "x", 60, 30.0) is None
    assert rates.per_second("GPU-0", "y", 60, 30.0) is None
    rates.forget_all_but({"GPU-1"})
    assert rates.per_second("GPU-0", "x", 60, 60.0) is None
    assert rates.per_second("GPU-1", "x", 120, 60.0) == 2.0


@pytest.mark.slow
@given(READINGS)
def test_no_rate_is_more_than_what_came(readings: list[tuple[float, int, bool]]) -> None:
    """Whatever the clock does: never negative, and never more than all that came, over the shortest time."""
    rates, now, count = Rates(20.0), 0.0, 0
    for wait, came, anew in readings:
        now, count = now + wait, came if anew else count + came
        rate = rates.per_second("GPU-0", "x", count, now)
        assert rate is None or 0 <= rate <= count / 20
