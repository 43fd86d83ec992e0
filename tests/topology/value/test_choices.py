"""Sets of a large machine: one for all that are alike, and none left out."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.node.alike import Block
from topology.value.choices import Choices, TooManyChoices

MASKS = st.integers(0, (1 << 12) - 1)


def gpu(position: int) -> Block:
    return Block(1 << position)


def joined(*parts: Block) -> Block:
    return Block(sum(part.members for part in parts), parts)


def tree() -> Block:
    """Two sockets of three switches of two GPUs, the first two of which are to be found at positions 0 and 1."""
    switches = [joined(gpu(at), gpu(at + 1)) for at in range(0, 12, 2)]
    return joined(joined(*switches[:3]), joined(*switches[3:]))


def form(block: Block, marks: tuple[int, ...]) -> object:
    """Return what two sets that are alike have in common; written out anew: what is in each part, in any order."""
    if not block.parts:
        return tuple(bool(block.members & mark) for mark in marks)
    return tuple(sorted((form(part, marks) for part in block.parts), key=repr))


@pytest.mark.slow
@given(MASKS, MASKS, st.integers(1, 6))
def test_each_kind_of_set_is_there_once(open_: int, mark: int, size: int) -> None:
    """Against all sets of the open GPUs, with some GPUs marked as different."""
    every = [sum(1 << i for i in chosen) for chosen in combinations([i for i in range(12) if open_ >> i & 1], size)]
    found = [*Choices((tree(),), open_, (mark,), size)]
    kinds = [form(tree(), (mask, open_, mark)) for mask in found]
    assert {mask.bit_count() for mask in found} <= {size} and all(mask & ~open_ == 0 for mask in found)
    assert set(kinds) == {form(tree(), (mask, open_, mark)) for mask in every}
    assert len(kinds) == len(set(kinds))


def test_of_what_is_alike_the_lowest_is_taken() -> None:
    """All GPUs of a switch before those of the next."""
    assert [*Choices((tree(),), (1 << 12) - 1, (), 2)] == [0b11, 0b101, 0b1000001]
    assert [*Choices((tree(),), (1 << 12) - 1, (), 1).firsts()] == [0]


@given(MASKS, st.integers(1, 6))
def test_there_are_at_most_so_many_like_one_as_is_said(open_: int, size: int) -> None:
    """So what cannot be looked through is known before it is begun."""
    choices = Choices((tree(),), open_, (), size)
    every = sum(1 for _ in combinations(range(open_.bit_count()), size))
    assert every <= choices.swaps * len([*choices])


def test_more_than_can_be_compared_is_given_up() -> None:
    """Two sockets that are alike, each of twelve GPUs of which no two are."""
    sockets = [joined(*map(gpu, range(first, first + 12))) for first in (0, 12)]
    marks = [1 << i | 1 << i + 12 for i in range(12)]
    with pytest.raises(TooManyChoices):
        list(Choices((joined(*sockets),), (1 << 24) - 1, marks, 12))
