"""A page of very many costs the verbs no more than one step of it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.web.paging import STEP, first


@pytest.mark.slow
@given(st.lists(st.integers(0, 5000), min_size=0, max_size=3 * STEP), st.integers(1, 20))
def test_a_page_is_what_sorting_everything_would_begin_with(items: list[int], count: int) -> None:
    """Of those that are wanted."""
    found = asyncio.run(first(count, items, key=lambda item: -item, where=lambda item: item % 2 == 0))
    assert found == sorted((item for item in items if item % 2 == 0), reverse=True)[:count]


async def test_others_have_a_turn_after_every_step() -> None:
    """Whoever waits for the event loop waits for STEP items, however many there are."""
    looked, seen = 0, list[int]()

    def where(_: int) -> bool:
        nonlocal looked
        looked += 1
        return True

    page = asyncio.create_task(first(1, range(3 * STEP), key=lambda item: item, where=where))
    while not page.done():
        seen.append(looked)
        await asyncio.sleep(0)
    assert {STEP, 2 * STEP, 3 * STEP} <= set(seen)
    assert max(after - before for before, after in pairwise(seen)) <= STEP


async def test_what_comes_and_goes_meanwhile_does_not_matter() -> None:
    """The page is of the moment of the call."""
    items = dict.fromkeys(range(2 * STEP))
    page = asyncio.create_task(first(2, items, key=lambda item: -item, where=lambda _: True))
    await asyncio.sleep(0)
    items.clear()
    assert await page == [2 * STEP - 1, 2 * STEP - 2]
