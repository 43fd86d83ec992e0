"""The site of the documentation has a folder for each version, and begins at the newest release."""

import json
import re
from pathlib import Path

import pytest

from tests.release.numbers import NoRelease
from tests.release.site import add

ROOT = Path(__file__).resolve().parents[2]


def site(folder: Path, text: str) -> Path:
    """Lay out what `make docs` makes."""
    folder.mkdir()
    (folder / "index.html").write_text(text)
    return folder


def versions(pages: Path) -> list[str]:
    """Return the versions that people can choose, in order."""
    return [entry["version"] for entry in json.loads((pages / "versions.json").read_text())]


def test_versions_stand_in_order_and_the_start_page_leads_to_the_newest_release(tmp_path: Path) -> None:
    """0.10.0 is newer than 0.9.0, and `main` is no release."""
    pages = tmp_path / "pages"
    pages.mkdir()
    add(site(tmp_path / "a", "main"), pages, "main")
    assert "url=main/" in (pages / "index.html").read_text()
    for version in ("0.9.0", "0.10.0"):
        add(site(tmp_path / version, version), pages, version)
    assert versions(pages) == ["0.10.0", "0.9.0", "main"]
    assert "url=0.10.0/" in (pages / "index.html").read_text()
    assert (pages / "0.9.0/index.html").read_text() == "0.9.0"


def test_a_version_that_is_published_again_is_replaced(tmp_path: Path) -> None:
    """A page that is gone does not stay."""
    pages = tmp_path / "pages"
    pages.mkdir()
    first = site(tmp_path / "a", "first")
    (first / "gone.html").touch()
    add(first, pages, "main")
    add(site(tmp_path / "b", "second"), pages, "main")
    assert [file.name for file in (pages / "main").iterdir()] == ["index.html"]


@pytest.mark.parametrize("version", ["../elsewhere", "", "v0.2.0"])
def test_what_is_no_version_is_refused(tmp_path: Path, version: str) -> None:
    """It would be a folder anywhere."""
    with pytest.raises(NoRelease):
        add(tmp_path, tmp_path, version)


def test_the_theme_offers_the_versions() -> None:
    """It reads the file that is written here only where it is told of this program's form."""
    assert re.search(r"^  version: \{provider: mike\}$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
