"""I7: parsers take what honest senders write and what `make fuzz` once found; the search itself is too long for every run."""

from __future__ import annotations

import pytest

from tests.security.fuzz.parsers import PARSERS, found, seeds


@pytest.mark.parametrize("parser", PARSERS)
def test_i7_no_input_that_was_found_brings_a_parser_down(parser: str) -> None:
    """It reads it, or refuses it with the error that it promises."""
    inputs = [*seeds(parser), *found(parser)]
    assert inputs
    for data in inputs:
        for cut in {len(data), len(data) // 2, len(data) - 1}:
            PARSERS[parser](data[:cut])
