"""What the store promises beyond the API contract: determinism, history, and how watches read it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulated.double.api import HttpRequest, Reply, answer
from benchmarks.simulated.double.patch import merge_patch
from benchmarks.simulated.double.resources import NODES, PODS, ApiResource, Object
from benchmarks.simulated.double.selectors import everything, selector
from benchmarks.simulated.double.status import StatusError
from benchmarks.simulated.double.store import ObjectStore, Watch

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def store(**settings: Any) -> ObjectStore:
    numbers = count()
    return ObjectStore(now=lambda: NOON, new_uid=lambda: f"uid-{next(numbers)}", **settings)


def node(name: str, **metadata: Any) -> Object:
    return {"metadata": {"name": name, **metadata}}


def label(tier: str) -> Any:
    return lambda old: merge_patch(old, {"metadata": {"labels": {"tier": tier}}})


def told(watch: Watch) -> list[tuple[str, str]]:
    return [(kind, item["metadata"]["name"]) for kind, item in watch.poll()]


def test_clock_and_uids_come_from_outside() -> None:
    """Two stores that are told the same hold the same."""
    first, second = (store().create(NODES, "", node("n")) for _ in range(2))
    assert first == second
    assert first["metadata"]["creationTimestamp"] == "2026-01-01T12:00:00Z"


def test_a_kind_that_one_store_serves_is_unknown_to_the_next() -> None:
    """Or what a test adds would decide how another one ends in the same process."""
    claims = ApiResource("apis/resource.k8s.io/v1", "resourceclaims", "ResourceClaim")
    request = HttpRequest("GET", f"/{claims.root}/{claims.plural}", {}, "", b"")
    replies = [answer(cluster, request) for cluster in (store(kinds=[claims]), store())]
    assert [reply.code for reply in replies if isinstance(reply, Reply)] == [200, 404]


def test_versions_are_dense() -> None:
    """One write, one version, whatever the kind: that is how a version finds its place in the history."""
    cluster = store()
    before = cluster.resource_version
    cluster.create(NODES, "", node("n"))
    cluster.create(PODS, "default", {"metadata": {"name": "p"}})
    assert cluster.resource_version == before + 2
    assert len(list(cluster.changes_since(before))) == 2


def test_nothing_is_changed_in_place() -> None:
    """What a reader holds stays as it was, so the store need not copy."""
    cluster = store()
    made = cluster.create(NODES, "", node("n", labels={"tier": "tin"}))
    cluster.modify(NODES, "", "n", label("gold"))
    assert made["metadata"]["labels"] == {"tier": "tin"}


def test_generated_names_differ() -> None:
    """`generateName` is a prefix."""
    cluster = store()
    names = {cluster.create(NODES, "", {"metadata": {"generateName": "n-"}})["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("n-") for name in names)


def test_a_watch_that_falls_behind_the_history_is_expired() -> None:
    """It learns that it missed something, instead of missing it."""
    cluster = store()
    watch = Watch(cluster, NODES, "", everything, cluster.resource_version)
    cluster.create(NODES, "", node("a"))
    cluster.compact()
    cluster.create(NODES, "", node("b"))
    with pytest.raises(StatusError, match="too old resource version") as refusal:
        watch.poll()
    assert refusal.value.code == 410


def test_history_forgets_by_itself() -> None:
    """At least `history_limit` changes are kept, and less than about twice as many."""
    cluster = store(history_limit=10)
    for number in range(100):
        cluster.create(NODES, "", node(f"n{number}"))
    assert len(list(cluster.changes_since(cluster.resource_version - 10))) == 10
    with pytest.raises(StatusError):
        cluster.changes_since(cluster.resource_version - 21)


def test_a_bookmark_comes_only_with_news() -> None:
    """A watch that is as far as the store has nothing to mark; a write of another kind moves it."""
    cluster = store()
    watch = Watch(cluster, NODES, "", everything, cluster.resource_version)
    assert not watch.bookmark()
    cluster.create(PODS, "default", {"metadata": {"name": "p"}})
    assert told(watch) == []
    [(kind, marked)] = watch.bookmark()
    assert (kind, marked["metadata"]["resourceVersion"]) == ("BOOKMARK", str(cluster.resource_version))
    assert not watch.bookmark()


def test_a_selection_is_left_with_the_last_selected_state() -> None:
    """Who selects gold sees it go as gold, at the version at which it went."""
    cluster = store()
    cluster.create(NODES, "", node("n", labels={"tier": "gold"}))
    watch = Watch(cluster, NODES, "", selector("tier=gold", "", ()), cluster.resource_version)
    tin = cluster.modify(NODES, "", "n", label("tin"))
    [(kind, gone)] = watch.poll()
    assert (kind, gone["metadata"]["labels"]) == ("DELETED", {"tier": "gold"})
    assert gone["metadata"]["resourceVersion"] == tin["metadata"]["resourceVersion"]


def test_a_second_delete_counts_from_the_first() -> None:
    """A shorter grace period moves the deadline to where it would have been."""
    moments = iter(NOON + timedelta(seconds=60 * minute) for minute in count())
    cluster = ObjectStore(now=lambda: next(moments))
    cluster.create(PODS, "default", {"metadata": {"name": "p"}})
    cluster.bind("default", "p", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    asked, _ = cluster.delete(PODS, "default", "p")
    shortened, gone = cluster.delete(PODS, "default", "p", grace_period_seconds=10)
    assert not gone
    first, second = (
        datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp() for pod in (asked, shortened)
    )
    assert first - second == 30 - 10


writes = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["write", "delete"]), st.sampled_from(["gold", "tin"])),
    max_size=30,
)


@pytest.mark.slow
@given(writes, st.integers(0, 30))
def test_list_and_watch_together_miss_nothing(steps: list[tuple[str, str, str]], cut: int) -> None:
    """A list at any moment plus the events after it are the list of now, for a selector too."""
    cluster = store()
    gold = selector("tier=gold", "", ())
    copy: dict[str, Object] = {}
    watch = None
    for position, (name, action, tier) in enumerate([*steps, ("a", "write", "tin")]):
        if position == min(cut, len(steps)):
            page = cluster.list(NODES, selected=gold)
            copy = {item["metadata"]["name"]: item for item in page.items}
            watch = Watch(cluster, NODES, "", gold, page.resource_version)
        _step(cluster, name, action, tier)
    assert watch is not None
    for kind, item in watch.poll():
        copy.pop(item["metadata"]["name"], None)
        if kind != "DELETED":
            copy[item["metadata"]["name"]] = item
    assert sorted(copy.items()) == [
        (item["metadata"]["name"], item) for item in cluster.list(NODES, selected=gold).items
    ]


def _step(cluster: ObjectStore, name: str, action: str, tier: str) -> None:
    there = any(item["metadata"]["name"] == name for item in cluster.list(NODES).items)
    if action == "delete" and there:
        cluster.delete(NODES, "", name)
    elif action == "write" and there:
        cluster.modify(NODES, "", name, label(tier))
    elif action == "write":
        cluster.create(NODES, "", node(name, labels={"tier": tier}))


@pytest.mark.slow
@given(writes, st.integers(1, 3))
def test_pages_of_any_size_are_the_list_of_their_first_moment(steps: list[tuple[str, str, str]], limit: int) -> None:
    """Whatever is written between the pages."""
    cluster = store()
    for name in "abc":
        cluster.create(NODES, "", node(name))
    whole = cluster.list(NODES)
    page = cluster.list(NODES, limit=limit)
    items = list(page.items)
    for name, action, tier in steps:
        _step(cluster, name, action, tier)
    while page.token:
        page = cluster.list(NODES, limit=limit, token=page.token)
        items += page.items
    assert tuple(items) == whole.items
    assert page.resource_version == whole.resource_version
