"""The places where bugs are put in are still there; where one has moved, its mutants would say so only after minutes."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

from tests.simulation.mutants import seams

NAMES = {name: place for name, place in vars(seams).items() if name.isupper()}


@pytest.mark.parametrize("seam", NAMES)
def test_a_seam_is_where_it_is_said_to_be(seam: str) -> None:
    """Module, class and name can be found."""
    assert resolve_name(NAMES[seam]) is not None
