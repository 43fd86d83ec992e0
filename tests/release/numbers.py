"""A version's number and its notes, in the files that say them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Final

CHANGELOG: Final = "CHANGELOG.md"
_NEXT: Final = "## [Unreleased]\n"
_VERSION: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


class NoRelease(Exception):
    """There can be no such release; the text says why."""


def chart_version(version: str) -> str:
    """Return the same version as Helm writes it, which is by semantic versioning.

    >>> chart_version("0.2.0"), chart_version("0.2.0.dev0")
    ('0.2.0', '0.2.0-dev.0')
    """
    return version.replace(".dev", "-dev.")


_NUMBERED: Final = (
    ("pyproject.toml", re.compile(r'^(version = ")[^"]*(")$', re.MULTILINE), str),
    ("manifests/chart/Chart.yaml", re.compile(r"^(appVersion: )\S+()$", re.MULTILINE), str),
    ("manifests/chart/Chart.yaml", re.compile(r"^(version: )\S+()$", re.MULTILINE), chart_version),
)


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
    texts = _numbered(root, version)
    changes = (root / CHANGELOG).read_text(encoding="utf-8")
    texts[CHANGELOG] = changes.replace(_NEXT, f"{_NEXT}\n## [{version}] - {day.isoformat()}\n", 1)
    _write(root, texts)


def write_development_number(root: Path, version: str) -> None:
    """Write the number that the commits before a release have; raises `NoRelease` before anything is written."""
    order(version)
    _write(root, _numbered(root, f"{version}.dev0"))


def _numbered(root: Path, version: str) -> dict[str, str]:
    """Return the texts of the files that say the number, with this one."""
    texts: dict[str, str] = {}
    for name, pattern, written in _NUMBERED:
        text = texts.get(name) or (root / name).read_text(encoding="utf-8")
        texts[name], count = pattern.subn(rf"\g<1>{written(version)}\g<2>", text)
        if not count:
            raise NoRelease(f"{name}: no version stands there")
    return texts


def _write(root: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")
