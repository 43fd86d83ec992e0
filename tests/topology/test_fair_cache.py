"""A bounded table, and owners that want more of it than others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.fair_cache import FairCache

LIMIT = 12
OWNERS = ("a", "b", "c")
KEYS_EACH = LIMIT // len(OWNERS)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from(("b", "c")), st.integers(1, KEYS_EACH)), max_size=30),
    st.lists(st.integers(), max_size=100),
    st.randoms(use_true_random=False),
)
def test_no_owner_loses_a_key_to_one_that_wants_more_than_its_part(
    modest: list[tuple[str, int]], greedy: list[int], random: object
) -> None:
    """In whatever order they come, and whether the greedy one has used the same keys before or after."""
    table = FairCache[object, int](LIMIT)
    uses = [*(("a", number) for number in greedy), *((owner, (owner, number)) for owner, number in modest)]
    random.shuffle(uses)  # type: ignore[attr-defined]
    for owner, key in uses:
        table.put(key, 1, owner)
    assert len(table) == min(LIMIT, len({key for _, key in uses}))
    assert all(key in table for owner, key in uses if owner != "a")


def test_a_key_belongs_to_the_owner_that_has_fewest() -> None:
    """Or a tenant that is first to use what all use could push it out."""
    table = FairCache[int, int](LIMIT)
    for number in range(LIMIT):
        table.put(number, 1, "greedy")
    assert table.use(0, "modest") == 1
    for number in range(LIMIT, 3 * LIMIT):
        table.put(number, 1, "greedy")
    assert (0 in table, table.owner_of(0), len(table)) == (True, "modest", LIMIT)


def test_of_one_owner_the_rarest_goes_first_and_then_the_one_that_was_not_used_for_longest() -> None:
    """Returned with its value."""
    table = FairCache[str, int](3, weight=float)
    assert [table.put(key, value, "") for key, value in (("often", 5), ("old", 1), ("older", 1))] == [None] * 3
    assert table.use("old", "") == 1
    assert table.put("new", 1, "") == ("older", 1)
    assert table.put("newer", 1, "") == ("old", 1)
    assert [*table.items()] == [("often", 5), ("new", 1), ("newer", 1)]


def test_where_owners_are_more_than_places_the_one_that_was_not_there_for_longest_leaves() -> None:
    """Nobody holds a place for ever."""
    table = FairCache[str, int](2)
    table.put("a", 1, "a")
    table.put("b", 1, "b")
    table.use("a", "a")
    assert table.put("c", 1, "c") == ("b", 1)
