"""Count how the product is laid out: `python -m tests.house`, or with `--root FOLDER` in another checkout."""

from __future__ import annotations

import argparse
import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PRODUCT = ("extender", "agent", "topology", "benchmarks")
MAX_ATTRIBUTES = 18
MAX_FILES = 14
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the product."""

    path: str
    """From the root of the checkout."""
    text: str

    @property
    def tree(self) -> ast.Module:
        """Return its syntax tree."""
        return ast.parse(self.text)

    @property
    def unit(self) -> str:
        """Return the module or folder directly in its package that it is, or is in; empty for the package itself."""
        unit = self.path.split("/")[1].removesuffix(".py")
        return "" if unit == "__init__" else unit


def modules(root: Path, *packages: str) -> Iterator[Module]:
    """Yield the files of these packages in order, without those that protoc generates."""
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            if "_pb2" not in path.name:
                yield Module(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


def lines(root: Path, *packages: str) -> int:
    """Return how many lines the packages have, blank ones and comments included."""
    return sum(len(module.text.splitlines()) for module in modules(root, *packages))


def units(root: Path, package: str) -> list[str]:
    """Name the modules and folders directly in a package; folders have a slash."""
    paths = {module.path.split("/")[1] for module in modules(root, package) if module.unit}
    return sorted(name if name.endswith(".py") else f"{name}/" for name in paths)


def imports_between_units(root: Path, package: str) -> Counter[tuple[str, str]]:
    """Return (importing unit, imported unit) of a package → how many import statements there are."""
    between: Counter[tuple[str, str]] = Counter()
    for module in modules(root, package):
        for imported in _imports(module.tree, package):
            if module.unit and imported != module.unit:
                between[module.unit, imported] += 1
    return between


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the unit of each import from the package, whichever form it has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith(f"{package}."))


def files_per_folder(root: Path, package: str) -> Counter[str]:
    """Return folder → its modules, `__init__` included."""
    return Counter(module.path.rpartition("/")[0] for module in modules(root, package))


def repeated_modules(root: Path, package: str) -> dict[str, list[str]]:
    """Return name of a module → its files, where a package has more than one of that name."""
    paths: dict[str, list[str]] = {}
    for module in modules(root, package):
        if (name := module.path.rpartition("/")[2]) != "__init__.py":
            paths.setdefault(name, []).append(module.path)
    return {name: several for name, several in sorted(paths.items()) if len(several) > 1}


def repeated_classes(root: Path, *packages: str) -> dict[str, list[str]]:
    """Return name of a public class → its files, where the packages have more than one of that name."""
    paths: dict[str, list[str]] = {}
    for module in modules(root, *packages):
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                paths.setdefault(node.name, []).append(module.path)
    return {name: several for name, several in sorted(paths.items()) if len(several) > 1}


def large_classes(root: Path, *packages: str) -> dict[str, int]:
    """Return `file: class` → the attributes that its `__init__` sets, where these are more than `MAX_ATTRIBUTES`.

    A dataclass, a struct or a settings model has no `__init__` of its own, and does not count.
    """
    counts = {
        f"{module.path}: {node.name}": len(_attributes(node))
        for module in modules(root, *packages)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    return {name: count for name, count in counts.items() if count > MAX_ATTRIBUTES}


def _attributes(cls: ast.ClassDef) -> set[str]:
    inits = (node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    return {
        node.attr
        for init in inits
        for node in ast.walk(init)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def report(root: Path) -> Iterator[str]:
    """Yield the figures, a line each, and then the names behind them."""
    direct, between = units(root, "extender"), imports_between_units(root, "extender")
    yield f"modules and folders directly in extender/: {len(direct)}"
    yield f"modules directly in extender/: {sum(name.endswith('.py') for name in direct)}"
    yield f"pairs of these where one imports the other: {len(between)}"
    yield f"import statements behind these pairs: {between.total()}"
    yield f"lines of the product: {lines(root, *PRODUCT)}"
    yield f"lines of extender/service.py: {lines_of(root / 'extender' / 'service.py')}"
    folders = files_per_folder(root, "agent")
    yield f"most files in a folder of agent/: {max(folders.values(), default=0)}"
    yield from (f"  {count} {folder}" for folder, count in folders.most_common() if count > MAX_FILES)
    large = large_classes(root, "extender", "agent")
    yield f"classes of extender/ and agent/ that set more than {MAX_ATTRIBUTES} attributes: {len(large)}"
    yield from (f"  {count} {name}" for name, count in large.items())
    for package in ("extender", "agent"):
        names = repeated_modules(root, package)
        yield f"names that several modules of {package}/ have: {len(names)}"
        yield from (f"  {len(paths)} {name}: {', '.join(paths)}" for name, paths in names.items())
    classes = repeated_classes(root, *PRODUCT)
    yield f"names that several public classes of the product have: {len(classes)}"
    yield from (f"  {len(paths)} {name}: {', '.join(paths)}" for name, paths in classes.items())


def lines_of(path: Path) -> int:
    """Return how many lines a file has."""
    return len(path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to count in (default: this one)")
    print(*report(parser.parse_args().root), sep="\n")
