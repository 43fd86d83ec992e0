"""A line that is broken is another line, and everybody who has imported it runs the broken one."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.transplant import transplant

SOURCE = '''
LIMIT = 7

class Shop:
    """Sells what there is."""

    def __init__(self, apples: int = 2, *, price: int = 5, owner: object = object()) -> None:
        self.apples = apples
        self.price = price

    @property
    def is_open(self) -> bool:
        """Whether anything is left."""
        return self.apples > 0 and self.apples < LIMIT

def sell(shop: Shop) -> None:
    if not shop.is_open:
        raise ValueError("closed")
    shop.apples -= 1
'''
BROKEN = {
    "7  →  8",
    "2  →  1",
    "5  →  6",
    "self.apples = apples  →  pass",
    "return self.apples > 0 and self.apples < LIMIT  →  return None",
    "self.apples > 0 and self.apples < LIMIT  →  self.apples > 0 or self.apples < LIMIT",
    "self.apples > 0 and self.apples < LIMIT  →  self.apples > 0",
    "self.apples > 0  →  self.apples >= 0",
    "if not shop.is_open  →  if False",
    "not shop.is_open  →  shop.is_open",
    "raise ValueError('closed')  →  pass",
    "shop.apples -= 1  →  pass",
}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[ModuleType]:
    """Give a module that can be imported."""
    path = tmp_path / "shop_to_break.py"
    path.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("shop_to_break", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[module.__name__]


def broken(module: ModuleType, change: str) -> Mutant:
    """Return the mutant with this change."""
    assert module.__file__
    return next(each for each in mutants_of(Path(module.__file__)) if f"{each.before}  →  {each.after}" == change)


def test_every_decision_of_a_line_is_broken(shop: ModuleType) -> None:
    """Conditions, their parts, statements, constants; words for people are left alone."""
    assert shop.__file__
    found = [f"{each.before}  →  {each.after}" for each in mutants_of(Path(shop.__file__))]
    assert set(found) >= BROKEN
    assert not any("Sells" in text or "mutant" in text for text in found if "closed" not in text)


@pytest.mark.parametrize(
    ("change", "open_with"), [("self.apples > 0  →  self.apples >= 0", 0), ("7  →  8", 7), ("2  →  1", 1)]
)
def test_what_was_imported_before_is_broken_too(shop: ModuleType, change: str, open_with: int) -> None:
    """Functions keep their identity, constants are set wherever they went, defaults are their function's."""
    kind = shop.Shop
    assert not kind(0).is_open
    assert not kind(7).is_open
    assert kind().apples == 2
    assert transplant(shop, broken(shop, change).broken()) == 1
    assert kind(open_with).is_open if open_with != 1 else kind().apples == 1


def test_a_default_that_can_be_named_is_broken_too(shop: ModuleType) -> None:
    """Beside one that is an object of its own, which stays."""
    owner = shop.Shop.__init__.__kwdefaults__["owner"]
    assert transplant(shop, broken(shop, "5  →  6").broken()) == 1
    assert shop.Shop().price == 6
    assert shop.Shop.__init__.__kwdefaults__["owner"] is owner


def test_a_line_that_is_as_before_is_no_break(shop: ModuleType) -> None:
    """Nobody could notice it."""
    assert transplant(shop, ast.parse(f"\n{SOURCE}")) == 0
