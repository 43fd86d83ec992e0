"""C23: find an order of all operations on one register that explains what each client was told, if there is one.

Every operation takes effect at one moment between its call and its answer; one that was never answered may take effect at any
later moment, or never. Search after Wing and Gong, with Lowe's memory of the states that were tried in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

Value = tuple[str, str | None] | None
"""A node's UID and the text of its ledger; `None`: there is no node."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A read (`becomes` is what was there), a compare-and-swap, or a write of somebody who does not look (`blind`)."""

    called: float
    answered: float
    was: Value
    becomes: Value
    blind: bool = False

    @property
    def may_be_lost(self) -> bool:
        """Whether nobody was told that it happened."""
        return self.answered == inf


def is_linearizable(history: Sequence[Operation], begins_with: Value = None) -> bool:
    """Say whether one order explains all answers; fast where few operations overlap, exponential in those that do."""
    operations = sorted(history, key=lambda operation: (operation.called, operation.answered))
    certain = sum(1 << at for at, operation in enumerate(operations) if not operation.may_be_lost)
    tried: set[tuple[int, Value]] = set()
    open_states: list[tuple[int, Value]] = [(0, begins_with)]
    while open_states:
        done, value = state = open_states.pop()
        if done & certain == certain:
            return True
        if state not in tried:
            tried.add(state)
            open_states += _successors(operations, done, value)
    return False


def _successors(operations: Sequence[Operation], done: int, value: Value) -> list[tuple[int, Value]]:
    """Return what the register may be after one more operation: any that was called before the next answer."""
    waiting = [(at, operation) for at, operation in enumerate(operations) if not done >> at & 1]
    next_answer = min(operation.answered for _, operation in waiting)
    return [
        (done | 1 << at, operation.becomes)
        for at, operation in reversed(waiting)
        if operation.called <= next_answer and (operation.blind or operation.was == value)
    ]
