"""Writes bytecode for what our programs import, and for nothing else: run once where the image is built.

Bytecode of everything would double the image; with none every start would compile 1,500 modules, as the image is read-only. It is
never compared with its source's date, because builds that can be repeated set all dates to one.
"""

from __future__ import annotations

import py_compile
import sys
from importlib import import_module
from pkgutil import walk_packages

PACKAGES = ("topology", "agent", "extender")
"""Imported whole."""
BESIDE = ("benchmarks.cli", "cel", "uvicorn.lifespan.on")
"""What else a start needs: imported by name, and only when it is wanted."""


def import_all() -> None:
    """Import our modules; an import that lacks something breaks the build here, and no pod later."""
    for package in map(import_module, PACKAGES):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(found.name)
    for name in BESIDE:
        import_module(name)


def main() -> None:
    """Compile what has been imported from below `sys.prefix`."""
    sys.dont_write_bytecode = True
    import_all()
    files = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    for file in sorted(file for file in files if file.startswith(sys.prefix) and file.endswith(".py")):
        py_compile.compile(file, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


if __name__ == "__main__":
    main()
