"""However many look, a page is made once in a while, one at a time, and a crowd is refused."""

from __future__ import annotations

import asyncio

import pytest

from extender.web import remembered
from extender.web.concurrency import Crowded
from extender.web.remembered import (
    KEPT,
    LONGEST_PAUSE_SECONDS,
    PAUSE_RATIO,
    SECONDS,
    WAITING,
    Remembered,
    RenderedPage,
)
from tests.extender.virtual_time import VirtualTimeLoop, in_virtual_time


class Maker:
    """Makes pages, and counts."""

    def __init__(self) -> None:
        self.made = 0
        self.at_once = self.most_at_once = 0

    async def __call__(self) -> RenderedPage:
        self.made += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return RenderedPage(str(self.made).encode())


async def test_everybody_who_asks_the_same_gets_one_page() -> None:
    """Also those who come while it is being made."""
    make, pages = Maker(), Remembered()
    found = await asyncio.gather(*(pages.page("/", make) for _ in range(10)))
    assert {page.text for page in found} == {b"1"}
    assert (await pages.page("/", make)).text == b"1"


async def test_a_page_is_made_anew_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees what is long past."""
    make, pages, time = Maker(), Remembered(), 100.0
    monkeypatch.setattr(remembered, "_now", lambda: time)
    await pages.page("/", make)
    time += SECONDS
    assert (await pages.page("/", make)).text == b"2"


async def test_pages_are_made_one_at_a_time() -> None:
    """Ten different ones do not take the event loop together."""
    make, pages = Maker(), Remembered()
    await asyncio.gather(*(pages.page(f"/{number}", make) for number in range(10)))
    assert (make.made, make.most_at_once) == (10, 1)


@in_virtual_time
async def test_calls_have_the_event_loop_for_most_of_the_time() -> None:
    """However many different pages are asked for; a page that took long delays the next one by a bounded time."""
    loop, pages = asyncio.get_running_loop(), Remembered()
    assert isinstance(loop, VirtualTimeLoop)

    async def seconds_of(page_seconds: float) -> float:
        async def make() -> RenderedPage:
            loop.advance(page_seconds)
            return RenderedPage(b"")

        begun_at = loop.time()
        await asyncio.gather(*(pages.page(f"/{page_seconds}/{number}", make) for number in range(5)))
        return loop.time() - begun_at

    assert await seconds_of(0.04) == pytest.approx((5 + 4 * PAUSE_RATIO) * 0.04)
    await asyncio.sleep(1.0)
    assert await seconds_of(2.0) == pytest.approx(5 * 2.0 + 4 * LONGEST_PAUSE_SECONDS)


async def test_a_crowd_is_refused() -> None:
    """Those who are let in are answered; afterwards others are."""
    make, pages = Maker(), Remembered()
    asked = [pages.page(f"/{number}", make) for number in range(WAITING + 5)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(each, RenderedPage) for each in found) == WAITING
    assert sum(isinstance(each, Crowded) for each in found) == 5
    assert await pages.page("/later", make)


async def test_what_failed_is_not_remembered() -> None:
    """And it takes nobody's place."""
    pages = Remembered()

    async def fail() -> RenderedPage:
        raise RuntimeError("a bug")

    for _ in range(WAITING + 1):
        with pytest.raises(RuntimeError):
            await pages.page("/", fail)


async def test_only_some_pages_are_kept() -> None:
    """Whoever asks for ever new ones takes no memory."""
    make, pages = Maker(), Remembered()
    for number in range(KEPT + 1):
        await pages.page(f"/{number}", make)
    await pages.page("/0", make)
    assert make.made == KEPT + 2
