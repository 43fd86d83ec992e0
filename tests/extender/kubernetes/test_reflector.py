"""The cache follows the API server through every way in which a list or a watch can go wrong."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from extender.cluster.objects.kinds import Node, ObjectMeta
from extender.cluster.objects.versions import NOTHING_MORE, Listing
from extender.kubernetes.documents import Expired, Lines, Overlong
from extender.kubernetes.reflector import Reflector, Timing, Unavailable
from tests.extender.virtual_time import in_virtual_time

Step = bytes | float | Exception
"""A chunk, seconds of silence, or a failure."""


def node(name: str, version: int, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": labels}}


def page(version: int, *items: dict[str, Any], continuation: str = "") -> bytes:
    metadata = {"resourceVersion": str(version), "continue": continuation}
    return json.dumps({"kind": "NodeList", "metadata": metadata, "items": items}).encode()


def line(event: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": event, "object": item}, ensure_ascii=False).encode() + b"\n"


def bookmark(version: int) -> bytes:
    """Return an empty object with a version; kube-apiserver leaves null in it where a real object never does."""
    return line("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": str(version)}, "status": None})


def error(code: int) -> bytes:
    return line("ERROR", {"kind": "Status", "status": "Failure", "code": code, "message": "no"})


@dataclass
class Script:
    """A source that plays prepared pages and streams; when they run out, a stream stays silent for ever."""

    pages: deque[bytes | Overlong | Exception]
    streams: deque[list[Step]] = field(default_factory=deque)
    calls: list[tuple[str, str | None, float]] = field(default_factory=list)
    latest: str = "1000000"
    """What the server answers when it is asked how far it is."""
    doubts: int = 0
    """How often it was asked."""

    async def list_page(self, continuation: str | None) -> bytes | Overlong:
        self.calls.append(("list", continuation, asyncio.get_running_loop().time()))
        answer = self.pages.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def latest_version(self) -> str:
        self.doubts += 1
        return self.latest

    async def watch(self, resource_version: str) -> AsyncGenerator[bytes]:
        self.calls.append(("watch", resource_version, asyncio.get_running_loop().time()))
        for step in self.streams.popleft() if self.streams else [b"", 1e9]:
            match step:
                case bytes():
                    yield step
                case Exception():
                    raise step
                case float():
                    await asyncio.sleep(step)

    def asked(self) -> list[tuple[str, str | None]]:
        return [(verb, argument) for verb, argument, _ in self.calls]


@dataclass
class Mirror:
    """A sink that keeps names and versions, and remembers how often it was replaced."""

    nodes: dict[str, str] = field(default_factory=dict)
    replacements: int = 0
    listings: list[Listing] = field(default_factory=list)
    unread_names: list[str] = field(default_factory=list)
    """Of versions of which no more could be told; `-` before those that are gone."""

    def replaced(self, objects: Sequence[Node], listing: Listing = NOTHING_MORE) -> None:
        self.listings.append(listing)
        self.nodes = {item.metadata.name: item.metadata.resource_version for item in objects}
        self.replacements += 1

    def changed(self, item: Node) -> None:
        self.nodes[item.metadata.name] = item.metadata.resource_version

    def deleted(self, item: Node) -> None:
        del self.nodes[item.metadata.name]

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        self.unread_names.append("-" * gone + metadata.name)


async def follow(
    pages: Sequence[bytes | Overlong | Exception],
    streams: Sequence[list[Step]] = (),
    seconds: float = 30.0,
    keep: Callable[[Node], Node | None] = lambda item: item,
) -> tuple[Mirror, Script, Reflector[Node]]:
    """Run a reflector over a script for some virtual seconds."""
    mirror, script = Mirror(), Script(deque(pages), deque(streams))
    reflector = Reflector("nodes", script, Node, mirror, keep=keep, random=Random(1))
    with suppress(TimeoutError):
        await asyncio.wait_for(reflector.run(), seconds)
    return mirror, script, reflector


@in_virtual_time
async def test_lists_all_pages_then_watches_from_their_version() -> None:
    """The cache is replaced once, and the watch begins where the list was read."""
    mirror, script, reflector = await follow([page(7, node("a", 3), continuation="t"), page(7, node("b", 9))])
    assert mirror.nodes == {"a": "3", "b": "9"}
    assert mirror.replacements == 1
    assert script.asked() == [("list", None), ("list", "t"), ("watch", "7")]
    assert reflector.synced.is_set()
    assert reflector.trouble is None


@in_virtual_time
async def test_applies_what_is_added_modified_and_deleted() -> None:
    """The three events do what they say."""
    stream: list[Step] = [
        line("ADDED", node("b", 8)) + line("MODIFIED", node("a", 9)),
        line("DELETED", node("b", 10)),
        1e9,
    ]
    mirror, _, _ = await follow([page(7, node("a", 3))], [stream])
    assert mirror.nodes == {"a": "9"}


@in_virtual_time
async def test_a_stream_that_is_cut_goes_on_from_the_last_version() -> None:
    """Neither the list's version nor an object's from the list is used again."""
    mirror, script, _ = await follow(
        [page(7, node("z", 99), node("a", 3))],
        [[line("MODIFIED", node("a", 12))], [line("MODIFIED", node("a", 13)), Unavailable("reset")]],
    )
    assert script.asked() == [("list", None), ("watch", "7"), ("watch", "12"), ("watch", "13")]
    assert mirror.nodes["a"] == "13"


@in_virtual_time
async def test_half_a_line_is_nothing_until_its_rest_arrives() -> None:
    """Chunks end anywhere, in the middle of a character too; a half line at the end of a stream is forgotten."""
    whole = line("MODIFIED", node("a", 12, city="Zürich"))
    cut = whole.index("ü".encode()) + 1
    mirror, script, _ = await follow(
        [page(7, node("a", 3))], [[whole[:cut], whole[cut:], line("DELETED", node("a", 13))[:-9]]]
    )
    assert mirror.nodes == {"a": "12"}
    assert script.asked()[-1] == ("watch", "12")


@pytest.mark.parametrize(
    "stream",
    [[error(410)], [line("MODIFIED", node("b", 7)) + error(410)], [Expired()]],
    ids=["in the stream", "after an event", "on resuming"],
)
@in_virtual_time
async def test_an_expired_version_means_a_new_list(stream: list[Step]) -> None:
    """What was missed is found by listing; what is gone from the list is gone from the cache."""
    mirror, script, _ = await follow([page(7, node("a", 3), node("b", 4)), page(20, node("b", 18))], [stream])
    assert script.asked() == [("list", None), ("watch", "7"), ("list", None), ("watch", "20")]
    assert mirror.nodes == {"b": "18"}


@in_virtual_time
async def test_an_expired_page_leaves_the_cache_whole() -> None:
    """A list that breaks off half way is not seen by anybody."""
    mirror, script, _ = await follow(
        [page(7, node("a", 3)), page(20, node("x", 18), continuation="t"), Expired(), page(21, node("y", 19))],
        [[error(410)]],
    )
    assert script.asked()[2:] == [("list", None), ("list", "t"), ("list", None), ("watch", "21")]
    assert mirror.nodes == {"y": "19"}
    assert mirror.replacements == 2


@in_virtual_time
async def test_bookmarks_move_the_version_and_keep_a_quiet_stream_alive() -> None:
    """Ten minutes without an event: no new list, no reconnection, and the resumption is fresh."""
    quiet: list[Step] = [step for minute in range(10) for step in (50.0, bookmark(100 + minute))]
    mirror, script, reflector = await follow([page(7, node("a", 3))], [quiet], seconds=520)
    assert script.asked() == [("list", None), ("watch", "7"), ("watch", "109")]
    assert mirror.nodes == {"a": "3"}
    assert reflector.heard_at >= 500


@in_virtual_time
async def test_a_silent_stream_is_left_within_a_minute() -> None:
    """A black hole sends no FIN; the watchdog notices, and nothing is listed again."""
    _, script, reflector = await follow([page(7)], [[b"", 1e9], [b"", 1e9]], seconds=70)
    (_, _, first), (_, version, second) = script.calls[1:3]
    assert version == "7"
    assert 50 < second - first <= 60
    assert reflector.trouble is None


@pytest.mark.parametrize(
    "garbage",
    [
        b'{"type":"MODIFIED","object":{"metadata":{"name":"\xff"}}}\n',
        b"<html>bad gateway</html>\n",
        b'{"type":"MODIFIED"}\n',
        b'{"type":"MODIFIED","object":{"metadata":{}}}\n',
        b"[" * 200_000 + b"\n",
        b"x" * (12 << 20) + b"y",
        error(500),
    ],
    ids=["bad UTF-8", "HTML", "no object", "no version", "too deep", "too long", "server error"],
)
@in_virtual_time
async def test_garbage_breaks_the_stream_and_nothing_else(garbage: bytes) -> None:
    """What came before counts; the next stream goes on from there, and garbage met first means a new list."""
    mirror, script, _ = await follow(
        [page(7, node("a", 3)), page(30, node("a", 30))], [[line("MODIFIED", node("a", 12)), garbage], [garbage]]
    )
    assert script.asked() == [("list", None), ("watch", "7"), ("watch", "12"), ("list", None), ("watch", "30")]
    assert mirror.nodes == {"a": "30"}


@in_virtual_time
async def test_backs_off_while_the_server_is_away_and_returns_quickly() -> None:
    """Sixty seconds of refusals cost few calls, and the first one after them comes within ten seconds."""
    script = Script(deque([page(7)]), deque([[Unavailable("refused")] for _ in range(13)]))
    reflector = Reflector("nodes", script, Node, Mirror(), random=Random(1))
    with suppress(TimeoutError):
        await asyncio.wait_for(reflector.run(), 60)
    pauses = [b[2] - a[2] for a, b in zip(script.calls[1:], script.calls[2:], strict=False)]
    assert len(script.calls) < 25
    assert pauses[0] <= 0.1
    assert max(pauses) <= Timing().max_backoff_seconds


@in_virtual_time
async def test_a_stream_that_says_something_before_it_is_cut_is_resumed_at_once() -> None:
    """Progress resets the back-off."""
    cut: list[list[Step]] = [[line("MODIFIED", node("a", 8 + n)), Unavailable("reset")] for n in range(50)]
    _, script, _ = await follow([page(7)], cut, seconds=10)
    assert script.asked()[-1] == ("watch", "57")


@in_virtual_time
async def test_waits_as_long_as_the_server_says() -> None:
    """Retry-After is a floor under our own delay."""
    _, script, _ = await follow([Unavailable("busy", retry_after_seconds=17), page(7)])
    assert script.calls[1][2] >= 17


@in_virtual_time
async def test_a_server_that_expires_every_version_is_not_hammered() -> None:
    """A list does not count as progress: only a watch that says something does."""
    _, script, _ = await follow([page(n) for n in range(99)], [[Expired()] for _ in range(99)], seconds=60)
    assert sum(verb == "list" for verb, _ in script.asked()) < 25


@in_virtual_time
async def test_says_when_it_is_denied() -> None:
    """A lost permission is visible at once, and gone with the first answer."""
    _, _, reflector = await follow([page(7)], [[Unavailable("403", denied=True)]], seconds=0.01)
    assert reflector.denied
    _, _, reflector = await follow([page(7)], [[Unavailable("403", denied=True)]])
    assert not reflector.denied


@in_virtual_time
async def test_what_is_not_kept_is_not_heard_of() -> None:
    """Objects that nobody needs still move the version."""
    stream: list[Step] = [line("ADDED", node("c", 8)) + line("DELETED", node("b", 9))]
    mirror, script, _ = await follow(
        [page(7, node("a", 3), node("b", 4))], [stream], keep=lambda item: item if item.metadata.name == "a" else None
    )
    assert mirror.nodes == {"a": "3"}
    assert script.asked()[-1] == ("watch", "9")


@dataclass
class Model:
    """A server with a history; its streams are cut anywhere and its old versions expire."""

    random: Random
    log: list[tuple[int, bytes]] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)
    version: int = 1
    oldest: int = 1
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self) -> None:
        self.version += 1
        name = f"n{self.random.randrange(40)}"
        if name in self.nodes and self.random.random() < 0.3:
            del self.nodes[name]
            event = "DELETED"
        else:
            event = "MODIFIED" if name in self.nodes else "ADDED"
            self.nodes[name] = self.version
        self.log.append((self.version, line(event, node(name, self.version))))
        if self.random.random() < 0.002:
            self.oldest = self.version
        self.woken.set()

    async def list_page(self, continuation: str | None) -> bytes:
        return page(self.version, *(node(name, version) for name, version in self.nodes.items()))

    async def latest_version(self) -> str:
        return str(self.version)

    async def watch(self, resource_version: str) -> AsyncGenerator[bytes]:
        yield b""
        position, end = int(resource_version), asyncio.get_running_loop().time() + self.random.uniform(1, 30)
        while (now := asyncio.get_running_loop().time()) < end:
            if position < self.oldest:
                raise Expired
            fresh = b"".join(text for version, text in self.log if version > position)
            position = self.version
            for start in range(0, len(fresh), 1000):
                yield fresh[start : start + 1000]
            self.woken.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.woken.wait(), end - now)
        yield line("ADDED", node("never", 10**9))[:-20]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@in_virtual_time
async def test_misses_nothing_over_thousands_of_changes(seed: int) -> None:
    """Streams cut every 1 to 30 seconds, in the middle of lines, with expiries: the cache ends up equal to the server."""
    model, mirror = Model(Random(seed)), Mirror()
    running = asyncio.create_task(Reflector("nodes", model, Node, mirror, random=Random(seed)).run())
    for _ in range(2000):
        await asyncio.sleep(model.random.expovariate(10))
        model.change()
    await asyncio.sleep(15)
    running.cancel()
    assert mirror.nodes == {name: str(version) for name, version in model.nodes.items()}
    assert mirror.replacements > 1


def test_lines_are_bounded() -> None:
    """Memory does not grow with a line that never ends, and those that follow it are read."""
    lines = Lines(10)
    assert list(lines.feed(b"12345\n\n12345")) == [b"12345"]
    assert list(lines.feed(b"678901")) == [Overlong(b"12345678901", 10)]
    assert list(lines.feed(b"x" * 1000)) == []
    assert list(lines.feed(b"x\n12\n")) == [b"12"]
