"""Row N13: a call into NVML that does not return costs one time limit, and nothing but itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from threading import Event

import pytest

from agent.errors import NvmlUnavailable
from agent.gpus.facts import NvmlFacts
from agent.gpus.nvml.time_limit import TIMED_OUT, NvmlCalls
from tests.agent.builders import machine_of
from tests.extender.polling import until

FACTS = machine_of("GPU-1")
LONG_SECONDS = 60.0


class Driver:
    """NVML that answers once it may."""

    def __init__(self) -> None:
        self.answers = Event()
        self.asked = 0

    def read(self) -> NvmlFacts:
        self.asked += 1
        self.answers.wait()
        return FACTS


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Lend a driver that hangs, and let nothing hang in it for ever."""
    lent = Driver()
    yield lent
    lent.answers.set()


def no_driver() -> NvmlFacts:
    raise NvmlUnavailable("DRIVER_NOT_LOADED", "no driver")


def test_answer_is_passed_on(driver: Driver) -> None:
    """Each call asks again."""
    driver.answers.set()
    nvml = NvmlCalls(LONG_SECONDS)
    assert nvml.call(driver.read) == nvml.call(driver.read) == FACTS
    assert driver.asked == 2


def test_error_is_passed_on() -> None:
    """As it was raised: a library that does not match ends the agent."""
    with pytest.raises(NvmlUnavailable, match="DRIVER_NOT_LOADED"):
        NvmlCalls(LONG_SECONDS).call(no_driver)


def test_call_that_hangs_is_given_up_and_not_made_twice(driver: Driver) -> None:
    """Otherwise each look would leave one more thread that hangs."""
    nvml = NvmlCalls(0.05)
    for _ in range(3):
        with pytest.raises(NvmlUnavailable, match=TIMED_OUT):
            nvml.call(driver.read)
    assert driver.asked == 1


def test_answer_that_comes_late_is_followed_by_a_new_call(driver: Driver) -> None:
    """A late answer is as old as its question."""
    nvml = NvmlCalls(0.05)
    with pytest.raises(NvmlUnavailable):
        nvml.call(driver.read)
    driver.answers.set()
    assert nvml._latest
    nvml._latest.result(timeout=LONG_SECONDS)
    nvml._limit_seconds = LONG_SECONDS
    assert nvml.call(driver.read) == FACTS
    assert driver.asked == 2


async def test_answer_and_error_are_passed_on_to_an_event_loop(driver: Driver) -> None:
    """As to a thread."""
    driver.answers.set()
    nvml = NvmlCalls(LONG_SECONDS)
    assert await nvml.call_async(driver.read) == FACTS
    with pytest.raises(NvmlUnavailable, match="DRIVER_NOT_LOADED"):
        await nvml.call_async(no_driver)


async def test_call_that_hangs_gives_an_event_loop_back_and_is_not_made_twice(driver: Driver) -> None:
    """However many wait for it."""
    nvml = NvmlCalls(0.05)
    failures = await asyncio.gather(*(nvml.call_async(driver.read) for _ in range(3)), return_exceptions=True)
    assert [failure.code for failure in failures if isinstance(failure, NvmlUnavailable)] == 3 * [TIMED_OUT]
    assert driver.asked == 1


async def test_call_whose_caller_was_cancelled_is_waited_for(driver: Driver) -> None:
    """The next call begins when it has returned, and not before."""
    nvml = NvmlCalls(LONG_SECONDS)
    first = asyncio.ensure_future(nvml.call_async(driver.read))
    await until(lambda: driver.asked)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(nvml.call_async(driver.read))
    await asyncio.sleep(0)
    assert driver.asked == 1
    driver.answers.set()
    assert await second == FACTS
    assert driver.asked == 2
