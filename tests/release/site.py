"""`python -m tests.release.site SITE PAGES VERSION` adds a version of the documentation to the versions in PAGES.

- `versions.json` is what the theme's choice of versions reads.
- The start page leads to the newest release, or to `main` where nothing is released.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tests.release.numbers import NoRelease, order


def add(site: Path, pages: Path, version: str) -> None:
    """Copy the site into a folder of its version, and write what names all versions."""
    if version != "main":
        order(version)  # so that no other name becomes a path
    folder = pages / version
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(site, folder)
    releases = sorted((each.name for each in pages.iterdir() if _is_release(each.name)), key=order, reverse=True)
    versions = [*releases, *(["main"] if (pages / "main").is_dir() else [])]
    entries = [{"version": name, "title": name, "aliases": []} for name in versions]
    (pages / "versions.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    start = f'<!doctype html>\n<meta http-equiv="refresh" content="0; url={versions[0]}/">\n'
    (pages / "index.html").write_text(start, encoding="utf-8")
    (pages / ".nojekyll").touch()  # the files are a site already


def _is_release(name: str) -> bool:
    try:
        order(name)
    except NoRelease:
        return False
    return True


if __name__ == "__main__":
    try:
        add(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    except NoRelease as reason:
        sys.exit(f"docs-version: {reason}")
