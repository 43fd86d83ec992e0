"""Pods that come while others wait in vain are planned at once, as long as no node has gained room since these were planned."""

from __future__ import annotations

from random import Random

from extender.features.queue.newcomers import Newcomers
from tests.extender.builders import PAIRS, cluster, gpus, node, running
from tests.extender.features.queue.queued import of_gang, queued
from tests.extender.features.queue.site import Site


def names(newcomers: Newcomers) -> list[str]:
    return sorted(pod.pod.metadata.name for pod in newcomers.take())


def test_pods_that_came_or_changed_are_newcomers_once() -> None:
    """With the others of their gangs: a gang may be complete now."""
    state = cluster(node("n1", PAIRS), queued("old"), of_gang("a", size=3), of_gang("b", size=3))
    newcomers = Newcomers(state)
    assert names(newcomers) == []
    newcomers.all_are_planned()
    assert names(newcomers) == []
    state.pods.changed(queued("new"))
    state.pods.changed(queued("old", version=2))
    assert names(newcomers) == ["new"], "a version that asks for the same is no other pod"
    state.pods.changed(queued("old", version=3, node_selector={"pool": "a"}))
    assert names(newcomers) == ["old"]
    state.pods.changed(of_gang("c", size=3))
    assert (names(newcomers), names(newcomers)) == (["a", "b", "c"], [])


def test_there_are_no_newcomers_once_a_node_may_have_room() -> None:
    """Those that waited before them come first."""
    busy = running("busy", "n1", *gpus("n1", 0, 1, machine_name="rtx-3090-2"))
    state = cluster(node("n1", "rtx-3090-2"), node("n2", "rtx-3090-2"), busy, queued("old", 2))
    newcomers = Newcomers(state)
    newcomers.all_are_planned()
    state.pods.changed(queued("new"))
    state.pods.changed(running("other", "n2", *gpus("n2", 0, machine_name="rtx-3090-2")))
    assert names(newcomers) == ["new"]
    state.pods.changed(queued("late"))
    state.pods.deleted(busy)
    assert names(newcomers) == []
    newcomers.all_are_planned()
    assert names(newcomers) == []


async def test_a_newcomer_starts_before_the_next_plan_for_all() -> None:
    """That is not due for a long time after a plan in which nothing found room."""
    site = Site(1, 2, Random(0))
    site.create("large", [2, 2, 2])
    await site.tick()
    site.queue._not_before = site.seconds + 30.0
    site.create("pod", [2])
    await site.tick()
    assert site.bound() == {"pod"}


async def test_a_newcomer_leaves_kept_gpus_alone() -> None:
    """They are kept for a gang that waits."""
    site = Site(1, 2, Random(0))
    site.create("first", [2])
    await site.tick()
    site.create("gang", [2, 2])
    await site.tick()
    assert site.queue.turns.reservation is not None
    site.queue._not_before = site.seconds + 30.0
    site.create("pod", [2])
    await site.tick()
    assert site.waiting() == {"gang", "pod"}
    assert {why.words for _, why in site.queue.reasons} == {
        "there is no room for its gang now; GPUs are kept for it",
        "there is no room for it now",
    }


async def test_newcomers_beyond_those_that_may_be_under_way_are_planned_soon() -> None:
    """With all others, as soon as some of these are bound."""
    site = Site(1, 12, Random(0))
    await site.tick()
    site.queue._not_before = site.seconds + 1000.0
    site.queue.settings = site.queue.settings.model_copy(update={"ahead": 4})
    for number in range(12):
        site.create(f"p{number}", [2])
    for _ in range(4):
        await site.tick()
    assert site.waiting() == set()


async def test_pods_that_wait_are_counted_as_they_are() -> None:
    """Those that have a plan, or are gone, do not count, however long the last plan for all pods is ago."""
    site = Site(1, 2, Random(0))
    for name in ("gone", "stays"):
        site.create(name, [8])
    await site.tick()
    site.queue._not_before = site.seconds + 30.0
    site.create("pod", [2])
    site.create("late", [8])
    site.end("gone")
    await site.tick()
    assert (site.bound(), site.queue.reasons.by_reason()) == ({"pod"}, {"no-room": 2})
    assert site.queue.reasons.by_namespace() == {"default": 2}
