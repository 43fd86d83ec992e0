"""The tiers of `make test`, `make test-all` and `make test-gpu`: between them they run every test, and none twice."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"
MARKS = ("slow", "waits", "alone", "gpu")


def tiers() -> dict[str, list[str]]:
    """Return the expressions of marks that each target asks pytest for."""
    targets = re.findall(r"^(test|test-rest|test-gpu):.*\n((?:\t.*\n)+)", MAKEFILE.read_text(), re.MULTILINE)
    return {name: re.findall(r"pytest .*?-m \"?([a-z ]+)", recipe) for name, recipe in targets}


def possible() -> list[dict[str, bool]]:
    """Return every set of marks that a test can have, as `tests/conftest.py` gives them; none is both slow and of GPUs."""
    sets = [dict(zip(MARKS, has, strict=True)) for has in product((False, True), repeat=len(MARKS))]
    return [has for has in sets if (not has["gpu"] if has["slow"] else not (has["waits"] or has["alone"]))]


@pytest.mark.parametrize("marks", possible(), ids=lambda has: " ".join(filter(has.get, has)) or "none")
def test_every_test_runs_once(marks: dict[str, bool]) -> None:
    """By `make test`, by `make test-rest` or by `make test-gpu`."""
    found = tiers()
    expressions = [*found["test"], *found["test-rest"], *found["test-gpu"]]
    assert len(expressions) == 5
    assert sum(eval(expression, {}, marks) for expression in expressions) == 1
