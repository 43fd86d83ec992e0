"""What each fault does to a request, its reply and a watch, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import aiohttp
import pytest

from benchmarks.processes.client import MERGE_PATCH, ApiClient
from benchmarks.simulated.double.resources import NODES
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from tests.extender.polling import until
from tests.world.http_faults import FATES, Ending, RequestFault, Rule, StreamFault, Unreliable

LABEL = {"metadata": {"labels": {"a": "b"}}}


@asynccontextmanager
async def served(faults: Unreliable) -> AsyncIterator[tuple[ApiClient, ObjectStore]]:
    """Serve one node with these faults."""
    store = ObjectStore()
    store.create(NODES, "", {"metadata": {"name": "n1"}})
    async with ApiServer(store, faults=faults) as server, ApiClient(server.url) as api:
        yield api, store


async def patch(api: ApiClient) -> int:
    return (await api.call("PATCH", "/api/v1/nodes/n1", LABEL, content_type=MERGE_PATCH)).code


def is_written(store: ObjectStore) -> bool:
    return "labels" in store.get(NODES, "", "n1")["metadata"]


@pytest.mark.parametrize("fault", [fault for fault, fate in FATES.items() if fate.ending is Ending.TOLD])
async def test_an_answer_says_what_the_fault_wants_told(fault: RequestFault) -> None:
    """A refusal may be a lie: whether anything was written is another matter."""
    fate = FATES[fault]
    async with served(Unreliable([Rule(fault, seconds=(0, 0))])) as (api, store):
        assert await patch(api) == (fate.refusal or 200)
        assert is_written(store) == (fate.arrivals > 0)


@pytest.mark.parametrize("fault", [RequestFault.RESET_BEFORE, RequestFault.RESET_AFTER])
async def test_a_reset_says_nothing_of_the_write(fault: RequestFault) -> None:
    """The client sees the same, before or after the commit."""
    async with served(Unreliable([Rule(fault)])) as (api, store):
        with pytest.raises(aiohttp.ClientError):
            await patch(api)
        assert is_written(store) == (fault is RequestFault.RESET_AFTER)


@pytest.mark.parametrize("fault", [RequestFault.LOST_REQUEST, RequestFault.LOST_REPLY])
async def test_a_lost_message_is_waited_for_until_the_rule_is_lifted(fault: RequestFault) -> None:
    """Nothing comes back, and then the connection goes."""
    rule = Rule(fault)
    faults = Unreliable([rule])
    async with served(faults) as (api, store):
        waiting = asyncio.create_task(patch(api))
        await until(lambda: faults.struck[rule] and is_written(store) == (fault is RequestFault.LOST_REPLY))
        assert not waiting.done()
        faults.lift(rule)
        with pytest.raises(aiohttp.ClientError):
            await waiting


async def test_a_held_request_arrives_when_its_rule_is_lifted() -> None:
    """So a test decides what happens while it is under way."""
    held = Rule(RequestFault.SLOW, seconds=(3600, 3600))
    faults = Unreliable([held])
    async with served(faults) as (api, store):
        waiting = asyncio.create_task(patch(api))
        await until(lambda: faults.struck[held])
        assert not is_written(store)
        faults.lift(held)
        assert await waiting == 200


@pytest.mark.slow
async def test_slow_replies_overtake_each_other() -> None:
    """Each draws its own delay, out of a second that no machine sleeps through."""
    async with served(Unreliable([Rule(RequestFault.SLOW, seconds=(0, 1))])) as (api, _):
        order: list[int] = []

        async def ask(number: int) -> None:
            await api.call("GET", "/api/v1/nodes/n1")
            order.append(number)

        await asyncio.gather(*map(ask, range(10)))
        assert order != sorted(order)


async def test_a_busy_server_says_when_to_come_back_and_is_busy_so_often() -> None:
    """`times` bounds a rule; Retry-After is whole seconds."""
    busy = Rule(RequestFault.BUSY, method="PATCH", path="/api/v1/nodes/*", seconds=(3, 3), times=1)
    async with served(Unreliable([busy])) as (api, _):
        refused = await api.call("PATCH", "/api/v1/nodes/n1", LABEL, content_type=MERGE_PATCH)
        assert (refused.code, refused.retry_after_seconds) == (429, 3)
        assert await patch(api) == 200


@pytest.mark.parametrize(
    "rule",
    [
        Rule(RequestFault.BUSY, method="GET"),
        Rule(RequestFault.BUSY, path="*/pods"),
        Rule(RequestFault.BUSY, client="x"),
    ],
)
async def test_a_rule_concerns_nobody_else(rule: Rule) -> None:
    """Method, path and client all have to fit."""
    async with served(Unreliable([rule])) as (api, _):
        assert await patch(api) == 200


async def read(api: ApiClient, bookmarks: str = "false") -> list[str]:
    """Return the types of all events of a watch of two seconds at most."""
    query = {"timeoutSeconds": "2", "allowWatchBookmarks": bookmarks}
    async with aclosing(api.watch("/api/v1/nodes", **query)) as watch:
        return [kind async for kind, _ in watch]


async def test_a_cut_watch_ends_without_a_word() -> None:
    """As if the time of the watch were over, only earlier."""
    async with served(Unreliable([Rule(StreamFault.CUT, seconds=(0.05, 0.05))])) as (api, _):
        assert await read(api, bookmarks="true") == ["ADDED", "BOOKMARK"]


async def test_an_expired_watch_ends_with_an_error_event() -> None:
    """410 comes in the stream, after all was well for a while."""
    async with served(Unreliable([Rule(StreamFault.EXPIRED, seconds=(0.05, 0.05))])) as (api, _):
        assert await read(api) == ["ADDED", "ERROR"]


@pytest.mark.parametrize("fault", [StreamFault.BROKEN, StreamFault.GARBAGE])
async def test_a_spoilt_watch_cannot_be_read_to_its_end(fault: StreamFault) -> None:
    """Half a line and a reset, or bytes that are no UTF-8."""
    async with served(Unreliable([Rule(fault, seconds=(0.05, 0.05))])) as (api, _):
        with pytest.raises((aiohttp.ClientError, ValueError)):
            await read(api)


async def test_a_silent_watch_tells_nothing_more() -> None:
    """Not even its end, before the rule is lifted."""
    rule = Rule(StreamFault.SILENT, seconds=(0.0, 0.0))
    faults = Unreliable([rule])
    async with served(faults) as (api, store), aclosing(api.watch("/api/v1/nodes", timeoutSeconds="2")) as watch:
        assert (await anext(watch))[0] == "ADDED"
        store.create(NODES, "", {"metadata": {"name": "n2"}})
        faults.lift(rule)
        assert await anext(watch, None) is None


@pytest.mark.slow
async def test_a_late_watch_tells_all() -> None:
    """Every line comes, in order, later."""
    async with served(Unreliable([Rule(StreamFault.LATE, seconds=(0.1, 0.1))])) as (api, _):
        assert await read(api) == ["ADDED"]
