"""The limit of throttling is passed at the moment that was announced, and a GPU is judged again then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.health.policy import HealthPolicy
from agent.health.throttling import Spell, throttled_seconds, when_throttling_changes

POLICY = HealthPolicy()
HORIZON_SECONDS = 1300
"""Longer than anything that was throttled up to now counts."""


@st.composite
def throttled(draw: st.DrawFn) -> tuple[list[Spell], int]:
    """Return spells that do not overlap, the last one maybe not over, and the moment of the question."""
    moment, spells = 0, list[Spell]()
    for pause, length in draw(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 500)), max_size=6)):
        spells.append(Spell(float(moment + pause), float(moment + pause + length)))
        moment += pause + length
    if draw(st.booleans()):
        moment += 1
        spells.append(Spell(float(moment)))
    return spells, moment + draw(st.integers(0, 700))


@given(throttled())
def test_the_limit_is_passed_when_that_was_announced(history: tuple[list[Spell], int]) -> None:
    """Up while the GPU is throttled, down as earlier spells leave the window, and never in between."""
    spells, now = history

    def is_over(moment: float) -> bool:
        return throttled_seconds(spells, POLICY, moment) >= POLICY.throttled

    announced = min(when_throttling_changes(spells, POLICY, now), default=None)
    until = now + HORIZON_SECONDS if announced is None else round(announced)
    assert {is_over(moment) for moment in range(now, until, 20)} <= {is_over(now)}
    if announced is not None:
        assert is_over(now) in {not is_over(until), not is_over(announced)}
