"""Gangs start whole or not at all, and each that fits starts, whatever else waits and however often the planner dies."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.extender.features.queue.site import Site


async def test_two_gangs_that_need_the_same_nodes_do_not_block_each_other() -> None:
    """Each needs two of three nodes: one starts whole, and the other one when it has ended."""
    site = Site(1, 3, Random(0))
    site.create("a", [2, 2])
    site.create("b", [2, 2])
    await site.tick()
    assert site.bound() == {"a"}
    await site.tick()
    assert site.waiting() == {"b"}
    site.end("a")
    await site.tick()
    assert site.bound() == {"b"}


@pytest.mark.parametrize(
    ("requests", "first"),
    [(0, "urgent"), (1, "urgent"), (3, "urgent"), (4, "gang"), (5, "gang"), (7, "gang")],
)
async def test_a_begun_gang_is_carried_on_by_the_next_planner(requests: int, first: str) -> None:
    """Four ledgers, then four gates. Once all is claimed, not even an urgent gang gets in between.

    Claims without a plan are taken back.
    """
    site = Site(1, 5, Random(0))
    site.create("gang", [2, 2, 2, 2])
    await site.tick(dies_after=requests)
    site.create("urgent", [2, 2], priority=5)
    for _ in range(3):
        await site.tick()
    assert site.deaths == 1
    assert site.bound() == {first}


async def test_a_nomination_without_a_plan_is_taken_back() -> None:
    """That capacity would be kept for a pod that does not come."""
    site = Site(1, 1, Random(0))
    site.create("pod", [2])
    await site.tick(dies_after=1)
    assert (site.deaths, site.nominated()) == (1, {"pod"})
    site.create("urgent", [2], priority=5)
    await site.tick()
    assert (site.bound(), site.nominated()) == ({"urgent"}, set())


async def test_a_gang_that_requires_a_rack_is_carried_on_there() -> None:
    """The first gate was opened in the only rack with room for all."""
    site = Site(2, 3, Random(0))
    site.create("small", [2])
    await site.tick()
    site.create("gang", [2, 2, 2], is_required=True)
    await site.tick(dies_after=4)
    await site.tick()
    assert site.bound() == {"small", "gang"}
    assert len({node.partition("-")[0] for node in site.nodes_of("gang")}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2))
async def test_every_gang_starts_whole_however_often_the_planner_dies(
    first: int, rounds: Callable[[int, int], int]
) -> None:
    """Random gangs come and end on twelve nodes; the planner dies in two rounds of five."""
    for seed in range(first, rounds(2, 4), 2):
        site = await _with_a_planner_that_dies(Random(seed), to_come=40)
        assert site.waiting() == set()
        assert site.deaths > 2


async def _with_a_planner_that_dies(random: Random, to_come: int) -> Site:
    site, gangs = Site(3, 4, random), 0
    for _ in range(1500):
        if gangs < to_come and random.random() < 0.3:
            is_required = random.random() < 0.3
            pods = random.randint(1, 4 if is_required else 8)
            site.create(f"g{gangs}", random.choices((1, 2), k=pods), is_required=is_required)
            gangs += 1
        for gang in sorted(site.bound()):
            if random.random() < 0.06:
                site.end(gang)
        await site.tick(dies_after=random.randint(0, 12) if random.random() < 0.4 else None, binds=0.5)
        if gangs == to_come and not site.waiting():
            break
    assert gangs == to_come
    return site
