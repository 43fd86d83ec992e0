"""What shares may take, as values: of which GPUs, how much, and what is left beside others."""

from __future__ import annotations

import pytest

from topology.placement.shares import NO_SHARES, SharedGpu, Shares

SIZES = (10, 20, 30, 40)
SHARED = SharedGpu(0, 4, "dev"), SharedGpu(1, 15, None, 0), SharedGpu(2, -3, "dev")
MIXED = Shares(SIZES, SHARED, shareable=0b1000, more=1, beyond=0b0101)
FREE = Shares(SIZES, shareable=0b0110, more=2)


def test_unless_it_is_said_a_shared_gpu_has_one_pod_of_no_class_and_a_node_nothing_to_share() -> None:
    """Only what is certain counts."""
    assert SharedGpu(0, 4) == SharedGpu(0, 4, "", 1)
    assert Shares() == Shares((), (), 0, None, 0, None)
    assert NO_SHARES.refused is not None


@pytest.mark.parametrize(
    ("position", "sharing_class", "gib"),
    [(0, "dev", 4), (0, "", 0), (1, "dev", 15), (1, "", 15), (2, "dev", 0), (3, "dev", 40)],
)
def test_room_is_for_shares_of_one_class(position: int, sharing_class: str, gib: int) -> None:
    """Of a GPU whose last share has ended for any class, of a free one all of it, and never less than nothing."""
    assert MIXED.room_gib(position, sharing_class) == gib


@pytest.mark.parametrize(("more", "openable", "gib"), [(2, (1, 2), 20), (None, (1, 2), 20), (0, (), 0)])
def test_a_free_gpu_has_room_while_one_more_may_be_shared(
    more: int | None, openable: tuple[int, ...], gib: int
) -> None:
    """And one that may not be shared has none."""
    shares = Shares(SIZES, shareable=0b0110, more=more)
    assert (shares.openable, shares.room_gib(1, "")) == (openable, gib)
    assert [shares.room_gib(position, "") for position in (0, 3)] == [0, 0]


def test_no_other_gpus_are_free_than_those_that_are() -> None:
    """What is shared already stays."""
    assert FREE.of_free(0b0111) is FREE
    assert FREE.of_free(0b1100) == Shares(SIZES, shareable=0b0100, more=2)
    assert MIXED.of_free(0) == Shares(SIZES, SHARED, shareable=0, more=1, beyond=0b0101)


def test_of_some_gpus_alone_nothing_is_known_of_the_others() -> None:
    """Neither who shares them, nor whether they may be shared, nor what is beyond; of all of them it is the same value."""
    assert MIXED.among(0b1111) is MIXED
    assert MIXED.among(0b0011) == Shares(SIZES, SHARED[:2], shareable=0, more=1, beyond=0b0001)
    assert MIXED.among(0b1100) == Shares(SIZES, SHARED[2:], shareable=0b1000, more=1, beyond=0b0100)


def test_what_is_meant_for_others_is_not_left() -> None:
    """Whole GPUs, shares that have room, and where one has none nothing of the GPU."""
    assert MIXED.beside(0, ()) is MIXED
    assert MIXED.beside(0b1000, ()) == MIXED.among(0b0111)
    exactly = MIXED.beside(0, [(0, 4, "dev")])
    assert exactly.shared[0] == SharedGpu(0, 0, "dev", 2)
    assert MIXED.beside(0, [(0, 5, "dev")]) == MIXED.among(0b1110) == MIXED.beside(0, [(0, 1, "")])
    begun = FREE.beside(0, [(1, 5, "dev")])
    assert begun == Shares(SIZES, (SharedGpu(1, 15, "dev", 1),), shareable=0b0100, more=1)


def test_several_shares_of_one_gpu_are_counted_together() -> None:
    """As if one came after the other; where they have no room together, another GPU counts as shared all the same."""
    many = [(1, 3, "dev"), (2, 5, ""), (1, 4, "dev")]
    one_by_one = FREE
    for held in many:
        one_by_one = one_by_one.beside(0, [held])
    assert FREE.beside(0, many) == one_by_one
    assert FREE.beside(0, [(1, 15, ""), (1, 6, "")]) == Shares(SIZES, (), shareable=0b0100, more=1)
    assert FREE.beside(0, [(1, 3, "dev"), (1, 3, "prod")]) == Shares(SIZES, (), shareable=0b0100, more=1)


def test_room_for_exactly_some_shares_is_for_nothing_else() -> None:
    """Neither beside them nor on a free GPU; where one of them has no room, there is room for none."""
    assert FREE.only([(1, 5, ""), (1, 4, "")]) == Shares(SIZES, (SharedGpu(1, 9, "", 2),), shareable=0, more=1)
    assert MIXED.only([(0, 3, "dev")]) == Shares(SIZES, (SharedGpu(0, 3, "dev", 2),), 0, more=1, beyond=0b0101)
    assert FREE.only([(1, 5, ""), (2, 31, "")]) == Shares(SIZES, (), shareable=0, more=2)
