"""Take the screenshots of the web view, of the scene's pages: `python -m tests.pictures.screenshots FOLDER`.

They depend on the browser and its fonts, so no check compares them.
"""

from __future__ import annotations

import asyncio
import base64
import io
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

from tests.extender.web.browser import Tab, program, tab
from tests.pictures.scene import scene

COLOURS: Final = 128
"""Of a picture: with a palette it takes a third of the bytes."""

MARGIN_PX: Final = 20


@dataclass(frozen=True, slots=True)
class Screenshot:
    """A page of the web view, as far as the picture shows it."""

    name: str
    path: str
    width: int
    last: str
    """Selector of the last element that the picture shows."""


SCREENSHOTS: Final = (
    Screenshot("web-node", "/nodes/v100-a?pod=default/train", 720, "#worth"),
    Screenshot("web-cluster", "/", 960, "#placements"),
)


async def take(folder: Path) -> None:
    """Write a PNG for each of `SCREENSHOTS`."""
    with tempfile.TemporaryDirectory(prefix="gputopo-pictures-") as scratch:
        async with scene(Path(scratch)) as url, tab(Path(scratch) / "profile") as page:
            await page.call("Emulation.setScrollbarsHidden", hidden=True)
            for screenshot in SCREENSHOTS:
                (folder / f"{screenshot.name}.png").write_bytes(compact(await picture(page, url, screenshot)))


async def picture(page: Tab, url: str, screenshot: Screenshot) -> bytes:
    """Return the page as a PNG."""
    size = {"width": screenshot.width, "height": 400, "deviceScaleFactor": 1, "mobile": False}
    await page.call("Emulation.setDeviceMetricsOverride", **size)
    await page.open(url + screenshot.path)
    bottom = await page.value(f"document.querySelector('{screenshot.last}').getBoundingClientRect().bottom")
    clip = {"x": 0, "y": 0, "width": screenshot.width, "height": bottom + MARGIN_PX, "scale": 1}
    answer = await page.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    return base64.b64decode(answer["data"])


def compact(png: bytes) -> bytes:
    """Return the picture with a palette."""
    written = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS).save(written, "PNG", optimize=True)
    return written.getvalue()


if __name__ == "__main__":
    if program() is None:
        raise SystemExit("screenshots: needs Chromium (Debian: apt-get install chromium)")
    asyncio.run(take(Path(sys.argv[1])))
