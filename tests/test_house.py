"""The layout of the code: few files in a folder, few attributes in a class, and one script that counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import (
    MAX_FILES,
    PRODUCT,
    ROOT,
    files_per_folder,
    imports_between_units,
    large_classes,
    lines,
    repeated_classes,
    repeated_modules,
    units,
)

FILES = {
    "shop/__init__.py": "",
    "shop/till.py": "from shop.goods import price\nimport shop.goods.fruit\nfrom shop import doors\n",
    "shop/doors.py": "class Open: ...\nclass _Hidden: ...\n",
    "shop/goods/__init__.py": "",
    "shop/goods/price.py": "from shop.goods.fruit import Apple\nfrom shop.doors import Open\nimport os\n",
    "shop/goods/fruit.py": "class Apple: ...\nclass Open: ...\nclass _Hidden: ...\n",
    "shop/goods/price_pb2.py": "import shop.till\n",
    "shop/goods/more/doors.py": "\n\n# nothing\n",
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a checkout of a small package."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.slow
def test_the_extender_has_few_units_and_few_imports_between_them() -> None:
    """Somebody who is new sees the architecture from the folders; each further import makes that harder."""
    assert len(units(ROOT, "extender")) <= 16
    assert len(imports_between_units(ROOT, "extender")) <= 70
    assert len([*(ROOT / "extender").glob("[!_]*.py")]) <= 4


def test_no_folder_of_the_agent_has_many_files() -> None:
    """Where a folder would have more, some of its files have a subject in common."""
    assert {name: count for name, count in files_per_folder(ROOT, "agent").items() if count > MAX_FILES} == {}


def test_no_module_name_repeats_in_the_agent() -> None:
    """A file is found by its name alone."""
    assert repeated_modules(ROOT, "agent") == {}


@pytest.mark.slow
def test_no_name_of_a_public_class_repeats_in_the_product() -> None:
    """Neither in a search nor in a stack trace is one taken for the other."""
    assert repeated_classes(ROOT, *PRODUCT) == {}


@pytest.mark.slow
def test_no_class_sets_many_attributes() -> None:
    """One that does has several duties."""
    assert large_classes(ROOT, "extender", "agent") == {}


def test_units_are_modules_and_folders_directly_in_a_package(shop: Path) -> None:
    """The package's own `__init__` is none."""
    assert units(shop, "shop") == ["doors.py", "goods/", "till.py"]


def test_imports_are_counted_between_units_only(shop: Path) -> None:
    """In every form, each statement once; those inside a folder, of others and in generated files do not count."""
    between = {("till", "goods"): 2, ("till", "doors"): 1, ("goods", "doors"): 1}
    assert imports_between_units(shop, "shop") == between


def test_lines_and_files_are_counted_without_generated_ones(shop: Path) -> None:
    """Blank lines and comments count."""
    assert lines(shop, "shop") == 14
    assert files_per_folder(shop, "shop") == {"shop": 3, "shop/goods": 3, "shop/goods/more": 1}


def test_repeated_names_are_listed_with_their_files(shop: Path) -> None:
    """Private classes may repeat."""
    assert repeated_modules(shop, "shop") == {"doors.py": ["shop/doors.py", "shop/goods/more/doors.py"]}
    assert repeated_classes(shop, "shop") == {"Open": ["shop/doors.py", "shop/goods/fruit.py"]}


def test_attributes_are_counted_once_each_and_only_in_init(shop: Path) -> None:
    """Also where several are set at once, with a type or inside a branch; what is only read does not count."""
    ones = "\n        ".join(f"self.a{number} = self.b{number} = 0" for number in range(8))
    body = f"{ones}\n        self.c, self.d = 1, 2\n        if self.read_only:\n            self.e: int = 0\n"
    init = f"    def __init__(self, x):\n        {body}        self.a0 = 1\n        x.f = 1\n"
    (shop / "shop" / "large.py").write_text(f"class Large:\n{init}    def set(self):\n        self.g = 1\n")
    assert large_classes(shop, "shop") == {"shop/large.py: Large": 19}
    (shop / "shop" / "large.py").write_text(f"class Large:\n{init.replace('self.e: int', 'self.d: int')}")
    assert large_classes(shop, "shop") == {}
