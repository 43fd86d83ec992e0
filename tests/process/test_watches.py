"""Watches that are cut, silent, expired, late, flooded or garbled: W1 to W10."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from statistics import quantiles

import msgspec
import pytest

from benchmarks.processes.client import Json
from benchmarks.simulated.double.resources import EVENTS, NODES, PODS
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, fleet, gpu_pod, node_object
from extender.config.document import ExtenderConfiguration
from tests.cluster.gpu_cluster import wants
from tests.extender.polling import eventually, until
from tests.process import faults
from tests.process.backends import Double
from tests.process.calls import Call, Kind
from tests.process.proxy import Forward, Reply
from tests.process.replica import BRISK, Replica
from tests.process.world import World
from tests.world.http_faults import RequestFault, StreamFault, spoilt_line

SMALL = "rtx-3090-2"
ONE = SimulatedNode("n1", SMALL)
PHASES = ("Pending", "Running", "Unknown")


@pytest.fixture
def store(world: World) -> ObjectStore:
    """Give the double's store: changes in great number go past HTTP."""
    assert isinstance(world.backend, Double)
    return world.backend.store


async def test_w1_stream_that_is_cut_again_and_again_loses_no_change(
    world: World, store: ObjectStore, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Every watch goes on from the last version that was heard: each change is told, and all pods are known as they are."""
    (replica,), chance, wanted, cuts = await world.start(), Random(0), rounds(1000, 10_000), 0
    since, changes = store.resource_version, change_pods(store, chance)
    while store.resource_version < since + wanted:
        next(changes)
        if chance.random() < 0.05 and replica.proxy.streams:
            chance.choice(replica.proxy.streams).cut()
            cuts += 1
        await asyncio.sleep(0.001)
    truth = {pod["metadata"]["uid"]: pod["status"]["phase"] for pod in store.list(PODS).items}

    async def knows_the_truth() -> bool:
        return await replica.pods() == truth

    await eventually(knows_the_truth, 30)
    made = {change.resource_version for change in store.changes_since(since)}
    assert made <= replica.proxy.told["pods"]
    assert replica.proxy.count(Kind.LIST) == 2
    figure(
        f"W1: {len(made)} changes, streams cut {cuts} times: each told, {len(truth)} pods known as they are, no list anew"
    )


def change_pods(store: ObjectStore, chance: Random) -> Iterator[None]:
    """Let pods come, change and go, many of them as soon as they have come."""
    there = list[str]()
    for number in count():
        there.append(f"p-{number}")
        store.create(PODS, "default", strangers_pod(there[-1]))
        yield
        while chance.random() < 0.5:
            store.modify(PODS, "default", chance.choice(there), in_phase(chance.choice(PHASES)), subresource="status")
            yield
        if chance.random() < 0.8:
            gone = there.pop(chance.choice((-1, chance.randrange(len(there)))))
            store.delete(PODS, "default", gone, grace_period_seconds=0)
            yield


def in_phase(phase: str) -> Callable[[Json], Json]:
    return lambda pod: {**pod, "status": {**pod["status"], "phase": phase}}


async def test_w2_silent_stream_is_noticed(
    world: World, rounds: Callable[[int, int], int], goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """The connection stays and says nothing; the watchdog gives it up, and what was missed is heard on the next one."""
    limit = rounds(2, 55)
    brief = {**BRISK["watch"], "stream": f"{limit - 1}s", "silence": f"{limit}s"}
    (replica,), clock = await world.start(settings={"watch": brief}), asyncio.get_running_loop()
    assert ExtenderConfiguration().watch.silence <= 60
    for resource in ("nodes", "pods"):
        replica.proxy.stream(resource).fall_silent()
    began = clock.time()
    await world.join(ONE)
    await eventually(lambda: replica.knows("n1"), 90)
    seconds = clock.time() - began
    figure(f"W2: a silent stream was given up after {seconds:.1f} s, with a limit of {limit} s (55 s by default)")
    assert seconds <= goal(limit + 5)
    assert replica.proxy.count(Kind.LIST) == 2


async def test_w3_expired_version_means_a_whole_list_and_never_half_a_cache(
    world: World,
    store: ObjectStore,
    rounds: Callable[[int, int], int],
    goal: Callable[[float], float],
    figure: Callable[[str], None],
) -> None:
    """At thousands of nodes it is consistent again within seconds, and has known all of them all the time."""
    count = rounds(1500, 5000)
    for node in fleet({SMALL: count}):
        store.create(NODES, "", node_object(node))
    (replica,) = await world.start()
    for number, where in enumerate(("in the stream", "on resume", "on a page")):
        seconds, looks = await expire(store, replica, where, f"{SMALL}-{number}", f"new-{number}")
        assert looks and set(looks) == {count}
        figure(f"W3: 410 {where} at {count} nodes: consistent after {seconds:.2f} s; {len(looks)} looks saw all nodes")
        assert seconds <= goal(5)
        replica.proxy.forgive()


def is_watch_of_nodes(call: Call) -> bool:
    return call.kind is Kind.WATCH and call.resource == "nodes"


async def expire(store: ObjectStore, replica: Replica, where: str, gone: str, new: str) -> tuple[float, list[float]]:
    """Let one node go and another come while the watch expires.

    Returns after how many seconds that was known, and how many nodes were, whenever somebody looked.
    """
    clock, stream = asyncio.get_running_loop(), replica.proxy.stream("nodes")
    replica.proxy.hold_back("nodes")
    store.delete(NODES, "", gone)
    store.create(NODES, "", node_object(SimulatedNode(new, SMALL)))
    page = replica.proxy.meet(
        lambda call: "continue" in call.query, faults.of(RequestFault.EXPIRED), times=int(where == "on a page")
    )
    if where != "in the stream":
        replica.proxy.meet(is_watch_of_nodes, faults.of(RequestFault.EXPIRED), times=1)
    looks: list[float] = []
    looking, began = asyncio.create_task(watch_gauge(replica, "nodes", looks)), clock.time()
    if where == "in the stream":
        await stream.say(spoilt_line(StreamFault.EXPIRED))
    else:
        stream.cut()
    await eventually(lambda: replica.knows(new), 60)
    seconds = clock.time() - began
    looking.cancel()
    assert not await replica.knows(gone)
    assert len(page.met) == (where == "on a page")
    await replica.proxy.followed(stream)
    return seconds, looks


async def watch_gauge(replica: Replica, name: str, seen: list[float]) -> None:
    while True:
        seen.append(await replica.gauge(name))


async def test_w4_bookmarks_alone_keep_a_watch_alive_and_going(
    world: World, store: ObjectStore, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Nothing happens to nodes and pods for long: no stream is taken for silent, and its version goes on with the bookmarks."""
    seconds = rounds(6, 600)
    patient = {**BRISK["watch"], "stream": f"{seconds}s", "silence": f"{seconds + 1}s"}
    (replica,) = await world.start(settings={"watch": patient})
    (first,) = await world.start(settings={"watch": {**patient, "stream": "2s", "silence": "3s"}})
    clock = asyncio.get_running_loop()
    end = clock.time() + seconds - 3
    while clock.time() < end:
        store.create(EVENTS, "default", {"metadata": {"generateName": "e-"}})
        await asyncio.sleep(0.2)
    for each in (replica, first):
        await hears_of(each, store.resource_version)
    store.compact()
    for each in (replica, first):
        for stream in tuple(each.proxy.streams):
            stream.cut()
    await world.join(ONE)
    await eventually(lambda: replica.knows("n1"), 30)
    await eventually(lambda: first.knows("n1"), 30)
    assert [each.proxy.count(Kind.LIST) for each in (replica, first)] == [2, 2]
    figure(f"W4: {seconds} s of bookmarks alone, then the past compacted away: no list anew")


async def hears_of(replica: Replica, version: int) -> None:
    """Wait for a bookmark of that version or a later one on both watches, and until something was heard after it."""
    for resource in ("nodes", "pods"):
        await until(lambda: max(replica.proxy.told[resource], default=0) >= version)  # noqa: B023 - awaited here
    clock = asyncio.get_running_loop()
    passed_on = clock.time()

    async def is_heard() -> bool:
        asked = clock.time()
        return 0 <= await replica.gauge("watch_silence_seconds") < asked - passed_on

    await eventually(is_heard)


async def test_w5_late_reply_does_not_take_the_cache_back(
    world: World, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """The reply to a claim arrives after the watch has told what happened to the node since: that stays known."""
    (replica,), at_once = await world.start(), 10
    every = rounds(2, 100)
    for number in range(every):
        names = [f"n-{number}-{each}" for each in range(at_once)]
        await world.join(*(SimulatedNode(name, SMALL) for name in names))
        made = await world.submit(*(wants(name, 1) for name in names))
        await world.caught_up()
        held = [faults.Held(reply=True) for _ in names]
        for name, one in zip(names, held, strict=True):  # pods of the round before are still being released
            replica.proxy.meet(partial(is_ledger_of, name), one, times=1)
        binds = [asyncio.create_task(replica.bind(pod, pod["metadata"]["name"])) for pod in made]
        await asyncio.gather(*(one.arrived.wait() for one in held))
        for name in names:
            await fall_ill(world, name)
        await world.caught_up()
        await asyncio.gather(*(one.release() for one in held), *binds)
        for name in names:
            assert not await replica.sees_free(name, 1)
        await asyncio.gather(*(world.delete(name) for name in names))
    figure(f"W5: {every * at_once} replies older than the watch: the cache never went back")


def is_ledger_of(node: str, call: Call) -> bool:
    return call.kind is Kind.LEDGER and call.path.endswith(f"/nodes/{node}")


async def fall_ill(world: World, node: str) -> None:
    """Let the agent call the GPU sick that nobody has claimed."""
    (claim,) = (await world.ledger(node)).claims
    await world.agent_looks(node, lambda uuid: uuid != claim.gpu)


async def test_w6_watch_goes_on_from_the_version_of_the_list(world: World, store: ObjectStore) -> None:
    """In whatever order the list came: nothing is replayed, though the last item of the list is an old one."""
    for node in fleet({SMALL: 40}):
        store.create(NODES, "", node_object(node))
    version = store.resource_version
    replica, chance = await world.add(), Random(0)

    async def shuffled(_: Call, forward: Forward) -> Reply:
        page = await forward()
        document = msgspec.json.decode(page.body)
        chance.shuffle(document["items"])
        return Reply(page.status, page.headers, msgspec.json.encode(document))

    replica.proxy.meet(Kind.LIST, shuffled)
    await replica.run()
    await until(lambda: replica.proxy.hears_of_all, 30)
    watches = [call for call in replica.proxy.calls if call.kind is Kind.WATCH]
    assert {int(call.query["resourceVersion"]) for call in watches} == {version}


async def test_w7_delete_that_nobody_told_is_seen_by_the_next_list(world: World, store: ObjectStore) -> None:
    """The pods went while the watch was broken, one for a namesake: no ghost keeps a GPU, and the namesake is not its heir."""
    await world.join(SimulatedNode("n1", "hgx-h100"))
    (replica,) = await world.start()
    made = await world.submit(*(wants(f"p-{number}", 2) for number in range(4)))
    assert [await replica.bind(pod, "n1") for pod in made] == [""] * 4
    await eventually(lambda: world.are_running(4), 30)
    await world.caught_up()
    broken = replica.proxy.meet(lambda call: call.kind is Kind.WATCH and call.resource == "pods", faults.lost)
    replica.proxy.stream("pods").cut()
    for pod in made[:3]:
        await world.delete(pod["metadata"]["name"])
    await eventually(lambda: world.are_running(1), 30)
    await world.submit(wants("p-0", 2))
    store.compact()
    broken.end()
    await eventually(lambda: replica.counts("pods", 2), 30)
    await world.agents_look(["n1"])
    assert (await replica.gauge("pods_waiting")) == 1


async def test_w8_frozen_cache_shows_how_long_it_has_heard_nothing(
    world: World, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """What is planned on it is refused by the compare-and-swap, and the gauge is right within a second."""
    await world.join(SimulatedNode("n1", "hgx-h100"))
    patient = {**BRISK, "watch": {**BRISK["watch"], "stream": "50s", "silence": "55s"}}
    (fresh,), (frozen,) = await world.start(), await world.start(settings=patient)
    made, clock = await world.submit(*(wants(f"p-{number}", 4) for number in range(2))), asyncio.get_running_loop()
    await world.caught_up()
    frozen.proxy.hold_back("nodes", "pods")
    began = clock.time()
    assert await fresh.bind(made[0], "n1") == ""
    await asyncio.sleep(rounds(3, 30))
    asked, shown, told = clock.time(), await frozen.gauge("watch_silence_seconds"), clock.time()
    assert await frozen.bind(made[1], "n1") == ""
    assert frozen.proxy.statuses(Kind.LEDGER) == [422, 200]
    assert asked - began - 1 <= shown <= told - began + 1
    figure(f"W8: after {asked - began:.1f} s without news the gauge said {shown:.1f} s")


async def test_w9_flood_of_events_leaves_the_verbs_responsive(
    world: World, rounds: Callable[[int, int], int], goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """Five thousand a second: filter goes on answering meanwhile."""
    await world.join(SimulatedNode("n1", "hgx-h100"))
    lasting = {"watch": {**BRISK["watch"], "stream": "50s", "silence": "55s"}}
    (replica,), clock, thousands = await world.start(settings=lasting), asyncio.get_running_loop(), rounds(10, 50)
    made = await world.submit(*(strangers_pod(f"p-{number}") for number in range(100)))
    await eventually(lambda: replica.counts("pods", 100), 30)
    flood, delays = asyncio.create_task(pour(replica, made, thousands * 10)), list[float]()
    while not flood.done():
        asked = clock.time()
        assert await replica.fits(made[0], "n1")
        delays.append(clock.time() - asked)
        await asyncio.sleep(0.005)
    await flood
    p99 = quantiles(delays, n=100, method="inclusive")[98]
    figure(f"W9: {thousands},000 events in {thousands / 5:.0f} s: filter p99 {p99:.3f} s, longest {max(delays):.3f} s")
    assert p99 <= goal(0.1)
    await replica.kill()  # it has heard of versions that are still to come


async def pour(replica: Replica, made: list[Json], times: int) -> None:
    """Say fifty times a second that a hundred pods have changed."""
    for number in range(times):
        version = {"resourceVersion": str(1_000_000 + number)}
        changed = [{**pod, "metadata": pod["metadata"] | version} for pod in made]
        lines = [msgspec.json.encode({"type": "MODIFIED", "object": pod}) + b"\n" for pod in changed]
        await replica.proxy.stream("pods").say(b"".join(lines))
        await asyncio.sleep(0.02)


GARBAGE = {
    "half a line": spoilt_line(StreamFault.BROKEN),
    "no JSON": b"<html>502 Bad Gateway</html>\n",
    "bad UTF-8": b'{"type":"ADDED","object":{"metadata":{"name":"\xff\xfe"}}}\n',
    "an error": b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcdserver: leader changed"}}\n',
    "no object": b'{"type":"ADDED"}\n',
    "no version": b'{"type":"ADDED","object":{"metadata":{"name":"p","uid":"u"},"spec":{"containers":[]}}}\n',
    "a long line": b"x" * (13 << 20),
    "deep": b"[" * 100_000 + b"\n",
}


async def test_w10_garbage_in_a_stream_costs_a_reconnection(world: World, figure: Callable[[str], None]) -> None:
    """Half lines, endless ones, wrong bytes, errors: no crash, no word of it believed, and no memory kept."""
    await world.join(ONE)
    (replica,) = await world.start()
    before = replica.process.memory_bytes()
    for number, (kind, text) in enumerate(GARBAGE.items()):
        for resource in ("nodes", "pods"):
            stream = replica.proxy.stream(resource)
            with suppress(ConnectionError):  # it may hang up before it has read all of a long line
                await stream.say(text)
            if kind == "half a line":
                stream.cut()
            await replica.proxy.followed(stream)
        await world.join(SimulatedNode(f"after-{number}", SMALL))
        await eventually(lambda: replica.knows(f"after-{number}"), 30)  # noqa: B023
    assert len(replica.starts) == 1 and replica.is_running
    grown = replica.process.memory_bytes() - before
    assert grown < 64 << 20
    figure(f"W10: {2 * len(GARBAGE)} kinds of garbage, no crash, {grown >> 20} MiB more than before")


def strangers_pod(name: str) -> Json:
    """Return a pod that asks for a GPU of another scheduler, so that nobody here binds it."""
    return gpu_pod(name, 1, schedulerName="nobody")
