"""A version's number and its notes, in the files that say them."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Final

CHANGELOG: Final = "CHANGELOG.md"
NUMBERED: Final = {
    "pyproject.toml": re.compile(r'^(version = ")[^"]*(")$', re.MULTILINE),
    "manifests/chart/Chart.yaml": re.compile(r"^((?:version|appVersion): )\S+()$", re.MULTILINE),
}
_NEXT: Final = "## [Unreleased]\n"
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


class NoRelease(Exception):
    """There can be no such release; the text says why."""


def order(version: str) -> tuple[int, ...]:
    """Return what versions are compared by; raises `NoRelease` for what is none.

    >>> order("0.10.0") > order("0.9.2")
    True
    """
    if not _VERSION.fullmatch(version):
        raise NoRelease(f"{version!r} is no version such as 0.2.0")
    return tuple(map(int, version.split(".")))


def notes(root: Path, version: str) -> str:
    """Return what the changelog says of a version; empty where it says nothing."""
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    section = re.search(rf"^## \[{re.escape(version)}\](?: - \S+)?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return section[1].strip() if section else ""


def write_number(root: Path, version: str, day: date) -> None:
    """Write the number wherever it stands, and give it what the changelog has of what is unreleased.

    Raises `NoRelease` before anything is written.
    """
    order(version)
    if not notes(root, "Unreleased"):
        raise NoRelease(f"{CHANGELOG}: nothing is said under Unreleased")
    if notes(root, version):
        raise NoRelease(f"{CHANGELOG}: there is a {version} already")
    texts = {name: (root / name).read_text(encoding="utf-8") for name in (*NUMBERED, CHANGELOG)}
    for name, pattern in NUMBERED.items():
        texts[name], count = pattern.subn(rf"\g<1>{version}\g<2>", texts[name])
        if not count:
            raise NoRelease(f"{name}: no version stands there")
    texts[CHANGELOG] = texts[CHANGELOG].replace(_NEXT, f"{_NEXT}\n## [{version}] - {day.isoformat()}\n", 1)
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")
