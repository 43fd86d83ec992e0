"""Rounds: one failure policy for work that is done again and again, in virtual time."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from extender.kit.rounds import LONGEST_PAUSE_SECONDS, Round, Rounds
from tests.extender.rounds import listed
from tests.extender.virtual_time import in_virtual_time


class Work:
    """Notes when it is done, and fails for its first `failures` times."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.done_at: list[float] = []

    async def __call__(self) -> None:
        """Do it once."""
        self.done_at.append(asyncio.get_running_loop().time())
        if len(self.done_at) <= self.failures:
            raise RuntimeError("broken")

    def pauses(self) -> list[float]:
        """Return the seconds between two times."""
        return [after - before for before, after in pairwise(self.done_at)]


@pytest.mark.slow
@in_virtual_time
async def test_a_round_that_fails_is_counted_and_tried_again_with_backoff() -> None:
    """Its pause doubles up to a limit, and after a success it is the usual one."""
    work, failures = Work(failures=8), list[str]()
    rounds = Rounds(failures.append)
    rounds.start([Round(name="r", work=work, every_seconds=3.0)], listed)
    await asyncio.sleep(220.0)
    await rounds.stop()
    assert work.pauses()[:10] == [1, 2, 4, 8, 16, 32, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, 3, 3]
    assert failures == ["r"] * 8


@in_virtual_time
async def test_a_vital_round_that_fails_ends_its_process() -> None:
    """Others go on until then, and the cause is shown."""
    rounds = Rounds()
    rounds.start(
        [
            Round(name="vital", work=Work(failures=1), is_vital=True),
            Round(name="r", work=Work(), every_seconds=1.0),
        ],
        listed,
    )
    with pytest.raises(RuntimeError, match="broken"):
        await rounds.failure()
    assert rounds.life() == {"vital": "RuntimeError('broken')", "r": None}
    await rounds.stop()


@in_virtual_time
async def test_a_round_that_has_not_succeeded_for_long_is_stale() -> None:
    """Whether it fails or hangs; a success cures it."""
    hanging = Round(name="hangs", work=asyncio.Event().wait, stale_after_seconds=10.0)
    failing = Round(name="fails", work=Work(failures=5), every_seconds=5.0, stale_after_seconds=10.0)
    rounds = Rounds()
    rounds.start([hanging, failing], listed)
    await asyncio.sleep(5.0)
    before = rounds.stale()
    await asyncio.sleep(6.0)
    during = rounds.stale()
    await asyncio.sleep(25.0)
    after = rounds.stale()
    await rounds.stop()
    assert before == {"hangs": None, "fails": None}
    assert during == {"hangs": "failed for 11 s", "fails": "failed for 11 s"}
    assert after == {"hangs": "failed for 36 s", "fails": None}


@in_virtual_time
async def test_an_event_ends_the_pause_early() -> None:
    """And is cleared, so that the next pause is whole."""
    work, wake = Work(), asyncio.Event()
    rounds = Rounds()
    rounds.start([Round(name="r", work=work, every_seconds=10.0, wake=wake)], listed)
    await asyncio.sleep(4.0)
    wake.set()
    await asyncio.sleep(12.0)
    await rounds.stop()
    assert work.done_at == [0.0, 4.0, 14.0]


@in_virtual_time
async def test_rounds_wait_until_the_cluster_is_listed() -> None:
    """But for those that begin at once."""
    late, early, is_listed = Work(), Work(), asyncio.Event()
    rounds = Rounds()
    rounds.start([_once("late", late), _once("early", early, at_once=True)], is_listed.wait)
    await asyncio.sleep(7.0)
    is_listed.set()
    await asyncio.sleep(1.0)
    await rounds.stop()
    assert (early.done_at, late.done_at) == ([0.0], [7.0])


def _once(name: str, work: Work, *, at_once: bool = False) -> Round:
    return Round(name=name, work=work, at_once=at_once, every_seconds=100.0)
