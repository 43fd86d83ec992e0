"""The names of a call answer as a set of them would, whatever was expected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.verbs import names as module
from extender.verbs.names import FEW, Names

NAMES = st.lists(st.text("ab", max_size=3), max_size=12)


@given(listed=NAMES, expected=st.lists(NAMES, max_size=3), asked=NAMES, few=st.sampled_from([0, FEW]))
def test_names_are_what_a_set_of_them_is(
    listed: list[str], expected: list[list[str]], asked: list[str], few: int
) -> None:
    """Names may come twice, and what nobody expected may be asked about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", few)
        names = Names(listed)
        for some in expected:
            names.expect(some)
        assert [name in names for name in asked] == [name in set(listed) for name in asked]
        assert names.all == frozenset(listed)


def test_what_was_expected_needs_no_set_of_all_names() -> None:
    """That is what costs, with thousands."""
    names = Names([f"n{number}" for number in range(FEW + 1)])
    names.expect(["n7", "other"])
    assert ("n7" in names, "other" in names) == (True, False)
    assert names._all is None
    assert "n8" in names
