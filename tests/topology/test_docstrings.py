"""Examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import topology

MODULES = [module.name for module in pkgutil.walk_packages(topology.__path__, "topology.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    """Every `>>>` of the package, run."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0
