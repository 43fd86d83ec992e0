"""The checker itself: it accepts what one register can do, and nothing else."""

from __future__ import annotations

from math import inf

import pytest

from tests.simulation.invariants.linearizability import Operation, Value, is_linearizable


def value(ledger: str) -> Value:
    return ("uid", ledger)


def read(called: float, answered: float, ledger: str) -> Operation:
    return Operation(called, answered, value(ledger), value(ledger))


def swap(called: float, answered: float, was: str, becomes: str) -> Operation:
    return Operation(called, answered, value(was), value(becomes))


GOOD = {
    "one after the other": [swap(0, 1, "a", "b"), read(2, 3, "b")],
    "a read beside a swap sees either": [swap(0, 3, "a", "b"), read(1, 2, "b"), read(1, 2, "a")],
    "a lost swap takes effect late": [swap(0, inf, "a", "b"), read(1, 2, "a"), read(3, 4, "b")],
    "a lost swap never takes effect": [swap(0, inf, "a", "b"), swap(1, 2, "a", "c"), read(3, 4, "c")],
    "a stranger writes blindly": [Operation(1, 1, value("a"), value("z"), blind=True), read(2, 3, "z")],
}
BAD = {
    "two swaps of one value": [swap(0, 3, "a", "b"), swap(1, 2, "a", "c")],
    "a read of the past": [swap(0, 1, "a", "b"), read(2, 3, "a")],
    "a read of what was never there": [read(0, 1, "z")],
    "a read goes back": [swap(0, 9, "a", "b"), read(1, 2, "b"), read(3, 4, "a")],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_of_one_register_is_accepted(name: str) -> None:
    """There is an order that explains all answers."""
    assert is_linearizable(GOOD[name], begins_with=value("a"))


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_no_register_can_have_is_not(name: str) -> None:
    """There is none."""
    assert not is_linearizable(BAD[name], begins_with=value("a"))
