"""`python -m tests.release.licences LOCK` lists what a lock pins, with the licences that the distributions state.

It reads the metadata of what is installed, so it needs the virtual environment of `make venv`.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import metadata
from pathlib import Path


def licences(lock: Path) -> list[tuple[str, str, str]]:
    """Return name, version and licence of each distribution; the licence is empty where none is stated."""
    pinned = re.findall(r"^([\w.-]+)==([^\s;\\]+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    # Where the lock has two versions, for two versions of Python, both have the licence of the installed one.
    return [(name, version, _licence(name)) for name, version in pinned]


def _licence(name: str) -> str:
    """Prefer the SPDX expression, then the free text if it is one line, then the classifiers."""
    stated = metadata(name)

    def field(name: str) -> list[str]:
        return stated.get_all(name) or []

    free = [text.strip() for text in field("License") if "\n" not in text.strip()]
    classifiers = [text.rpartition(" :: ")[2] for text in field("Classifier") if text.startswith("License ::")]
    return next(filter(None, (*field("License-Expression"), *free, " OR ".join(classifiers))), "")


if __name__ == "__main__":
    for row in licences(Path(sys.argv[1])):
        print("\t".join(row))
