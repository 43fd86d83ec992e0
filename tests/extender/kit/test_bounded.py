"""A dictionary that never grows beyond its limit: the oldest entry makes room."""

from __future__ import annotations

import pytest

from extender.kit.bounded import Bounded


def filled(limit: int, keys: str) -> Bounded[str, str]:
    """Return a dictionary in which each letter is put, in this order."""
    table = Bounded[str, str](limit)
    for key in keys:
        table.put(key, key.upper())
    return table


def test_the_oldest_entry_makes_room() -> None:
    """`put` returns it, so that its owner can forget the rest."""
    table = filled(2, "ab")
    assert table.put("c", "C") == ("a", "A")
    assert [*table.items()] == [("b", "B"), ("c", "C")]
    assert "a" not in table and len(table) == 2


def test_an_entry_that_is_put_again_is_the_newest() -> None:
    """It makes no room, as there is enough."""
    table = filled(2, "ab")
    assert table.put("a", "again") is None
    assert [*table] == ["b", "a"]
    assert [*table.values()] == ["B", "again"]


def test_an_entry_that_is_replaced_stays_as_old_as_it_is() -> None:
    """Only an entry that is there can be replaced."""
    table = filled(2, "ab")
    table.replace("a", "new")
    assert [*table.items()] == [("a", "new"), ("b", "B")]
    with pytest.raises(KeyError):
        table.replace("c", "C")
    assert "c" not in table


def test_what_is_removed_makes_room_as_well() -> None:
    """A key that is not there has no value."""
    table = filled(2, "ab")
    assert (table.pop("a"), table.pop("a"), table.get("a"), table.get("b")) == ("A", None, None, "B")
    assert table.put("c", "C") is None
