"""A wall clock that is wrong for a moment makes no pod older: `relax-after` and the ages of groups depend on it."""

from __future__ import annotations

import pytest

from extender.kit.clock import BELIEVED_AFTER_SECONDS, SteadyClock

NOW = 1_800_000_000.0
HOUR, YEAR = 3600.0, 365 * 86_400.0
STEPS = [HOUR, -HOUR, 10 * YEAR, -10 * YEAR]


class Machine:
    """The clocks of a machine."""

    def __init__(self) -> None:
        self.monotonic, self.wall = 500.0, NOW
        self.clock = SteadyClock(lambda: self.monotonic, lambda: self.wall)

    def wait(self, seconds: float) -> float:
        """Let time pass; returns what counts as the wall clock's time then."""
        self.monotonic += seconds
        self.wall += seconds
        instant = self.clock()
        assert instant.monotonic == self.monotonic
        return instant.wall


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_does_not_last_changes_nothing(step: float) -> None:
    """However often it comes back."""
    machine = Machine()
    for _ in range(5):
        machine.wall += step
        before = machine.wait(0.0)
        assert machine.wait(BELIEVED_AFTER_SECONDS - 1.0) == before + BELIEVED_AFTER_SECONDS - 1.0
        machine.wall -= step
        assert machine.wait(1.0) == machine.wall


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_lasts_is_believed(step: float) -> None:
    """After a minute: the clock was wrong before."""
    machine = Machine()
    machine.wall += step
    assert machine.wait(0.0) == NOW
    assert machine.wait(BELIEVED_AFTER_SECONDS) == machine.wall


def test_one_step_after_the_other_is_not_one_that_lasts() -> None:
    """A clock that jumps about says nothing."""
    machine = Machine()
    for number in range(10):
        machine.wall += HOUR
        assert machine.wait(BELIEVED_AFTER_SECONDS / 2) == NOW + (number + 1) * BELIEVED_AFTER_SECONDS / 2
