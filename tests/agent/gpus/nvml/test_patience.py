"""Row N13: a call into NVML that does not return costs one patience, and nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from agent.errors import NvmlUnavailable
from agent.gpus.facts import NvmlFacts
from agent.gpus.nvml.patience import TIMED_OUT, PatientNvml
from tests.agent.builders import machine_of

FACTS = machine_of("GPU-1")


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


def test_answer_is_passed_on(driver: Driver) -> None:
    """And each look asks anew."""
    driver.answers.set()
    nvml = PatientNvml(driver.read)
    assert nvml() == nvml() == FACTS
    assert driver.asked == 2


def test_error_is_passed_on() -> None:
    """As it was raised: a library that does not match ends the agent."""

    def read() -> NvmlFacts:
        raise NvmlUnavailable("DRIVER_NOT_LOADED", "no driver")

    with pytest.raises(NvmlUnavailable, match="DRIVER_NOT_LOADED"):
        PatientNvml(read)()


def test_call_that_hangs_is_given_up_and_not_made_twice(driver: Driver) -> None:
    """A second one would hang beside it, and one per look in the end."""
    nvml = PatientNvml(driver.read, patience_seconds=0.05)
    for _ in range(3):
        with pytest.raises(NvmlUnavailable, match=TIMED_OUT):
            nvml()
    assert driver.asked == 1


def test_answer_that_comes_late_is_followed_by_a_new_discovery(driver: Driver) -> None:
    """What it says is as old as the question."""
    nvml = PatientNvml(driver.read, patience_seconds=0.05)
    with pytest.raises(NvmlUnavailable):
        nvml()
    driver.answers.set()
    assert nvml._reading
    nvml._reading.result(timeout=30)
    nvml._patience_seconds = 30.0
    assert nvml() == FACTS
    assert driver.asked == 2
