"""What GPUs do is read in time with the clock, where it is wanted, and told no longer than it is true."""

from __future__ import annotations

from threading import Event

from agent.errors import NvmlUnavailable
from agent.gpus.activity import Activity
from agent.monitoring.sampler import Sampler

ONE = (Activity("GPU-a", utilization_percent=5),)


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def dead() -> tuple[Activity, ...]:
    """Fail as a driver does that is gone."""
    raise NvmlUnavailable("UNKNOWN", "NVML does not work")


def yes() -> bool:
    return True


def test_nothing_is_told_before_the_first_sample() -> None:
    """And nothing is read by who asks."""
    assert Sampler(dead, yes, 15).samples() == ()


def test_a_sample_is_told_until_it_is_three_intervals_old() -> None:
    """A driver that hangs leaves a gap in the graph, and no straight line."""
    clock = Clock()
    sampler = Sampler(lambda: ONE, yes, 15, clock=clock)
    sampler.turn()
    clock.now += 44
    assert sampler.samples() == ONE
    clock.now += 1
    assert sampler.samples() == ()


def test_a_driver_that_fails_once_takes_nothing_back() -> None:
    """The next sample may come in time."""
    works = True
    sampler = Sampler(lambda: ONE if works else dead(), yes, 15, clock=Clock())
    sampler.turn()
    works = False
    sampler.turn()
    assert sampler.samples() == ONE


def test_what_is_not_wanted_is_neither_read_nor_told() -> None:
    """From the moment on in which somebody else tells it."""
    wanted = True
    sampler = Sampler(lambda: ONE if wanted else dead(), lambda: wanted, 15, clock=Clock())
    sampler.turn()
    assert sampler.samples() == ONE
    wanted = False
    sampler.turn()
    assert sampler.samples() == ()


def test_how_long_it_took_is_told() -> None:
    """On the sampler's own clock."""
    clock, took = Clock(), list[float]()

    def slow() -> tuple[Activity, ...]:
        clock.now += 2
        return ONE

    Sampler(slow, yes, 15, took.append, clock).turn()
    assert took == [2]


def test_a_reading_that_hangs_stops_nobody() -> None:
    """Not who asks, and not who closes."""
    hangs, begun = Event(), Event()

    def hanging() -> tuple[Activity, ...]:
        begun.set()
        hangs.wait()
        return ONE

    sampler = Sampler(hanging, yes, 15)
    sampler.start()
    assert begun.wait(10)
    assert sampler.samples() == ()
    sampler.close()
    hangs.set()


def test_it_goes_on_after_a_failure_that_nobody_has_thought_of() -> None:
    """Time after time, at its own pace."""
    read = Event()
    failures = [ValueError("?"), ValueError("?")]

    def reading() -> tuple[Activity, ...]:
        if failures:
            raise failures.pop()
        read.set()
        return ONE

    sampler = Sampler(reading, yes, 0.01)
    sampler.start()
    assert read.wait(10)
    sampler.close()
