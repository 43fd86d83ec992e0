"""What the agent knows of its node's ledger when a read is slow, fails, or comes after something newer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from threading import Event

import pytest

from agent.errors import ApiError
from agent.node.ledger import LedgerReader, LedgerReading, NodeLedger
from tests.extender.polling import until
from topology.annotations import keys
from topology.annotations.records import Ledger, encode_ledger

OLD, NEW = Ledger(7, ()), Ledger(9, ())


class Api:
    """Answers reads with a ledger, or with an error, once it may."""

    def __init__(self, *answers: Ledger | str | None) -> None:
        self._answers: Iterator[Ledger | str | None] = iter(answers)
        self.reads = 0
        self.answers = Event()
        self.answers.set()

    def read(self) -> Mapping[str, str]:
        self.reads += 1
        answer = next(self._answers)
        self.answers.wait()
        if answer is None:
            raise ApiError(0, "nobody there")
        return {keys.LEDGER: answer if isinstance(answer, str) else encode_ledger(answer)}


async def test_ledger_that_was_heard_of_stands_in_for_a_read_that_fails() -> None:
    """Its reader is told that it is not from just now."""
    ledger = NodeLedger(Api(None).read)
    ledger.heard(encode_ledger(NEW))
    assert await LedgerReader(ledger).read(5.0) == LedgerReading(NEW, fresh=False)


async def test_read_that_came_too_late_serves_the_next_one() -> None:
    """What it brought is not thrown away."""
    api = Api(NEW, None)
    ledger = NodeLedger(api.read)
    reader = LedgerReader(ledger)
    api.answers.clear()
    assert await reader.read(0.01) == LedgerReading(None, fresh=False)
    api.answers.set()
    await until(lambda: ledger.known == NEW)
    assert await reader.read(5.0) == LedgerReading(NEW, fresh=False)


async def test_fresh_read_is_believed_for_now_and_remembered_only_if_nothing_later_is_known() -> None:
    """An API server that is behind shows what was there before, and a watch what was there before the read."""
    ledger = NodeLedger(Api(OLD, None).read)
    ledger.heard(encode_ledger(NEW))
    reader = LedgerReader(ledger)
    assert await reader.read(5.0) == LedgerReading(OLD, fresh=True)
    assert await reader.read(5.0) == LedgerReading(NEW, fresh=False)


@pytest.mark.parametrize("illegible", ["", "{}", "no JSON"])
async def test_illegible_ledger_replaces_nothing(illegible: str) -> None:
    """Promises are kept that were made in the one before."""
    ledger = NodeLedger(Api(illegible).read)
    ledger.heard(encode_ledger(OLD))
    ledger.heard(illegible)
    assert await LedgerReader(ledger).read(5.0) == LedgerReading(OLD, fresh=True)


async def test_reads_that_hang_are_not_joined_by_others() -> None:
    """Two threads wait for the API server, whatever the kubelet asks meanwhile."""
    api = Api(NEW, NEW, NEW, NEW)
    api.answers.clear()
    ledger = NodeLedger(api.read)
    reader = LedgerReader(ledger)
    for _ in range(3):
        assert await reader.read(0.01) == LedgerReading(None, fresh=False)
    api.answers.set()
    await until(lambda: ledger.known == NEW and not reader._under_way)
    assert await reader.read(5.0) == LedgerReading(NEW, fresh=True)
    assert api.reads == 3


@pytest.mark.parametrize("turns", range(4))
async def test_reader_that_is_told_to_end_does_so_though_the_answer_comes_just_then(turns: int) -> None:
    """Else nobody would tell it again; `turns` of the event loop are from the answer to that."""
    reader = LedgerReader(NodeLedger(Api(NEW).read))
    reading = asyncio.create_task(reader.read(5.0))
    await asyncio.sleep(0)
    reader._threads.shutdown(wait=True)
    for _ in range(turns):
        await asyncio.sleep(0)
    was_told = reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled() == was_told
