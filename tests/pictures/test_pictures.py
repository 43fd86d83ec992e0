"""The pictures show what the programs print, are small, and are all on some page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.extender.web.browser import program
from tests.pictures import screenshots
from tests.pictures.terminal import draw
from tests.pictures.why import COMMAND, output

IMAGES = ROOT / "docs" / "images"
MAX_BYTES = 150_000


def words(svg: str) -> list[tuple[float, str]]:
    """Return the texts of a picture, and where each begins."""
    return [(float(x), text) for x, text in re.findall(r'<text x="([\d.]+)"[^>]*>([^<]*)<', svg)]


def test_cells_of_a_column_begin_at_one_place() -> None:
    """Whatever stands before them in their line."""
    svg = draw("list", "NODE   NOTE\na      first\nlonger  \n")
    starts = {text: x for x, text in words(svg)}
    assert starts["NOTE"] == starts["first"] > starts["NODE"] == starts["a"] == starts["$ list"]


def test_output_is_text_and_never_markup() -> None:
    """A node's name could be anything."""
    assert words(draw("list", "<b>&"))[-1][1] == "&lt;b&gt;&amp;"


@pytest.mark.waits
async def test_the_picture_of_why_shows_what_the_plugin_prints() -> None:
    """The committed picture, byte for byte."""
    assert (IMAGES / "why.svg").read_text() == draw(COMMAND, await output())


@pytest.mark.waits
@pytest.mark.skipif(program() is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
async def test_screenshots_show_the_pages_as_far_as_declared(tmp_path: Path) -> None:
    """One PNG each, as wide as declared, from the top of the page to the last element."""
    await screenshots.take(tmp_path)
    for screenshot in screenshots.SCREENSHOTS:
        with (
            Image.open(tmp_path / f"{screenshot.name}.png") as taken,
            Image.open(IMAGES / f"{screenshot.name}.png") as kept,
        ):
            assert taken.width == kept.width == screenshot.width
            assert taken.height > 400, "the window's own height"


def test_pictures_are_small() -> None:
    """Every clone of the repository contains them."""
    assert [file.name for file in IMAGES.iterdir() if file.stat().st_size > MAX_BYTES] == []


def test_every_picture_is_on_some_page() -> None:
    """Or in the chart, as its icon is."""
    pages = [ROOT / "README.md", ROOT / "manifests/chart/Chart.yaml", *(ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"images/([\w.-]+)", page.read_text())}
    assert {file.name for file in IMAGES.iterdir() if file.suffix != ".json"} - shown == set()
