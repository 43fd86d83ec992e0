"""The tiers of `make test-all` and `make test-gpu`: between them they run every test, and none twice."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import FIRST, pytest_ignore_collect, pytest_itemcollected

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = ROOT / "Makefile"
MARKS = ("slow", "waits", "alone", "gpu")
TIERS = ("test", "test-slow", "test-waits", "test-alone", "test-gpu")


def tiers() -> dict[str, str]:
    """Return the expression of marks that each target passes to pytest."""
    recipes = dict(re.findall(r"^(test[a-z-]*): venv .*\n\t(.*)$", MAKEFILE.read_text(), re.MULTILINE))
    return {name: re.findall(r'-m "?([a-z ]+)', recipes[name])[-1] for name in TIERS}


def possible() -> list[dict[str, bool]]:
    """Return every set of marks that a test can have, as `tests/conftest.py` gives them; none is both slow and of GPUs."""
    sets = [dict(zip(MARKS, has, strict=True)) for has in product((False, True), repeat=len(MARKS))]
    return [has for has in sets if (not has["gpu"] if has["slow"] else not (has["waits"] or has["alone"]))]


@pytest.mark.parametrize("marks", possible(), ids=lambda has: " ".join(filter(has.get, has)) or "none")
def test_every_test_runs_once(marks: dict[str, bool]) -> None:
    """In exactly one tier."""
    assert sum(eval(expression, {}, marks) for expression in tiers().values()) == 1


def test_test_all_runs_every_tier_but_that_of_gpus() -> None:
    """`make test-all` needs no GPU."""
    targets = re.search(r"^test-all: (.*?) ##", MAKEFILE.read_text(), re.MULTILINE)
    assert targets is not None
    assert set(targets[1].split()) == set(TIERS) - {"test-gpu"}


@pytest.mark.parametrize("path", FIRST)
def test_what_the_order_of_tests_names_exists(path: str) -> None:
    """A folder that is renamed would lose its place unseen."""
    assert (ROOT / path).exists()


@pytest.mark.parametrize(
    ("file", "imported_by"),
    [
        ("test_waiting.py", {"test"}),
        ("extender/web/test_watching.py", {"test", "test-alone"}),
        ("contract/test_gates.py", {"test", "test-waits"}),
        ("process/test_bad_day.py", {"test-waits", "test-alone"}),
    ],
)
def test_a_tier_imports_only_files_that_may_have_tests_of_it(file: str, imported_by: set[str]) -> None:
    """Each worker would take longer to import the others than most tests do."""

    def is_imported(expression: str) -> bool:
        config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
        return not pytest_ignore_collect(ROOT / "tests" / file, config)

    assert {name for name, expression in tiers().items() if is_imported(expression)} == imported_by
    assert is_imported("") and is_imported("asyncio") and is_imported("alone or asyncio")


def test_a_mark_from_elsewhere_fails_the_run() -> None:
    """A tier would not import the file of such a test."""
    item: Any = SimpleNamespace(
        path=ROOT / "tests/test_waiting.py", nodeid="test_it", iter_markers=lambda: [pytest.mark.slow.mark]
    )
    item.add_marker = lambda name: None
    with pytest.raises(pytest.UsageError, match="test_it has marks that neither its file nor"):
        pytest_itemcollected(item)
