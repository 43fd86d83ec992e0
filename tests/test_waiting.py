"""The helpers that wait: each says what it waited for, and what it saw last."""

from __future__ import annotations

import pytest

from tests.cluster.polling import TimedOut, until_none
from tests.cluster.polling import eventually as eventually_in_threads
from tests.extender.polling import eventually, until
from tests.waiting import slowness


async def test_a_condition_that_never_holds_is_shown_with_what_it_reads() -> None:
    """Its source, its last answer, and its variables."""
    calls = ["filter"]
    with pytest.raises(TimeoutError, match=r"False for: .*len\(calls\) == 2(?s:.*)calls = \['filter'\]"):
        await until(lambda: len(calls) == 2, timeout_seconds=0.05)


async def test_a_probe_that_finds_nothing_is_shown_with_its_last_answer() -> None:
    """An empty list is not a true answer."""
    pods = list[str]()

    async def running_pods() -> list[str]:
        return pods

    with pytest.raises(TimeoutError, match=r"still \[\] for: async def running_pods"):
        await eventually(running_pods, timeout_seconds=0.05)


async def test_a_timeout_of_the_probe_itself_stays_what_it_is() -> None:
    """A call that timed out is not taken for the end of the wait."""

    async def call() -> bool:
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError, match=r"^no answer$"):
        await eventually(call)


def test_a_claim_about_a_cluster_is_shown_the_same_way() -> None:
    """Also where the condition is a method."""
    with pytest.raises(TimedOut, match=r"still '' for: .*strip(?s:.*)self = ' '"):
        eventually_in_threads(" ".strip, within_seconds=0.05)


def test_what_does_not_go_is_shown() -> None:
    """As it was seen last."""
    pods = ["stuck", "slow"]

    def left() -> list[str]:
        return [pods.pop()] if len(pods) > 1 else pods

    with pytest.raises(TimedOut, match=r"still \['stuck'\] for: def left"):
        until_none(left, within_seconds=0.05)


@pytest.mark.parametrize(("longer", "times"), [(0.5, 1.0), (4.0, 4.0), (100.0, 8.0)])
def test_a_wait_is_longer_where_other_work_holds_the_cores(longer: float, times: float) -> None:
    """By as much as a calculation takes longer than it computes, within bounds."""
    computed = 0.0

    def cpu() -> float:
        nonlocal computed
        computed += 0.001
        return computed

    assert slowness(lambda: longer * computed, cpu) == pytest.approx(times, rel=0.2)
