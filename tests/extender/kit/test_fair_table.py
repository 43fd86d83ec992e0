"""A table that one tenant fills up costs no other tenant its entries, nor its turn."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kit.fair_table import FairTable

KEYS = st.tuples(st.sampled_from("abc"), st.integers(0, 9))
"""A key's namespace, and its number there."""


def filled(limit: int, **namespaces: int) -> FairTable[tuple[str, int], str]:
    """Return a table in which each namespace has put so many entries, one namespace after the other."""
    table = FairTable[tuple[str, int], str](limit)
    for namespace, count in namespaces.items():
        for number in range(count):
            table.put((namespace, number), namespace, f"{namespace}{number}")
    return table


def test_who_has_most_makes_room() -> None:
    """However many entries one tenant puts, before or after: the others keep theirs."""
    assert [*filled(5, good=2, evil=1000)] == [("good", 0), ("good", 1), ("evil", 997), ("evil", 998), ("evil", 999)]
    assert [*filled(5, evil=1000, good=2)] == [("evil", 997), ("evil", 998), ("evil", 999), ("good", 0), ("good", 1)]
    assert Counter(namespace for namespace, _ in filled(6, a=9, b=9, c=9)) == {"a": 2, "b": 2, "c": 2}


def test_one_tenant_alone_may_have_all() -> None:
    """And loses its oldest entry, which `put` returns."""
    table = filled(3, only=3)
    assert table.put(("only", 3), "only", "new") == "only0"
    assert [*table] == [("only", 1), ("only", 2), ("only", 3)]


def test_each_namespace_has_its_turn() -> None:
    """One entry each, as long as there are any."""
    table = filled(100, a=3, b=1, c=2)
    assert table.in_turn(4) == [("a", 0), ("b", 0), ("c", 0), ("a", 1)]
    for key in table.in_turn(2):
        table.to_back(key)
    assert table.in_turn(9) == [("c", 0), ("a", 1), ("b", 0), ("c", 1), ("a", 2), ("a", 0)]
    table = filled(100, a=3, b=1, c=2)
    assert [table.pop_in_turn() for _ in range(2)] == ["a0", "b0"]
    table.put(("b", 1), "b", "b1")
    assert [table.pop_in_turn() for _ in range(len(table))] == ["c0", "a1", "b1", "c1", "a2"]


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["put", "pop", "turn"]), KEYS)), st.integers(1, 6))
def test_it_is_what_a_plain_list_would_be(steps: list[tuple[str, tuple[str, int]]], limit: int) -> None:
    """Whatever is put and removed: bounded, in order, and nobody loses an entry while another one has more."""
    table, plain = FairTable[tuple[str, int], int](limit), list[tuple[str, int]]()
    for number, (step, key) in enumerate(steps):
        if step == "turn" and plain:
            taken = table.pop_in_turn()
            plain.remove(next(found for found in plain if found not in table))
            assert isinstance(taken, int)
        elif step == "pop":
            assert (table.pop(key) is None) is (key not in plain)
            plain = [found for found in plain if found != key]
        elif step == "put":
            plain = [*(found for found in plain if found != key), key]
            had = Counter(namespace for namespace, _ in plain)
            table.put(key, key[0], number)
            if len(plain) > limit:
                (lost,) = (found for found in plain if found not in table)
                assert had[lost[0]] == max(had.values())
                assert lost == next(found for found in plain if found[0] == lost[0])
                plain.remove(lost)
        assert [*table] == plain
        assert [*reversed(table)] == plain[::-1]
        assert sorted(table.in_turn(9 * limit)) == sorted(plain)
        assert len(table) == len(plain) == len([*table.values()])
