"""Examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [file for folder in ("agent", "benchmarks", "extender", "topology") for file in (ROOT / folder).rglob("*.py")]
MODULES = sorted(".".join(file.relative_to(ROOT).with_suffix("").parts) for file in FILES if ">>> " in file.read_text())


def test_the_examples_of_each_part_are_run() -> None:
    """None is left out because it was not looked for."""
    assert {name.partition(".")[0] for name in MODULES} == {"agent", "benchmarks", "extender", "topology"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    """Every `>>>` of a module, run."""
    ran = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert ran.attempted and not ran.failed
