"""No object, however large, deep or odd, keeps anybody from hearing of the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from extender.cluster.objects.kinds import Node, ObjectMeta, Pod
from extender.kubernetes.documents import HEAD_BYTES, Overlong, decoder, without_managed_fields
from extender.kubernetes.kube import MAX_OBJECT_BYTES
from extender.kubernetes.reflector import Reflector, Unavailable, list_objects
from tests.extender.kubernetes.test_reflector import Mirror, Script, Step, follow
from tests.extender.virtual_time import in_virtual_time

Json = dict[str, Any]
NAMED = {"kind": "Node", "apiVersion": "v1"}


def node(name: str, version: int, **more: object) -> Json:
    """Return a node whose fields stand in the order in which the API server writes them."""
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), **more}, "spec": {}}


def heavy(name: str, version: int, size_bytes: int) -> Json:
    return {**node(name, version), "status": {"nodeInfo": "<" * (size_bytes // 6)}}


def odd(name: str, version: int) -> Json:
    return {**node(name, version), "status": {"allocatable": [1, 2, 3]}}


def deep(name: str, version: int, levels: int = 9000) -> Json:
    return node(name, version, managedFields=[{"manager": "}]},", "fieldsV1": "DEEP"}]) | {"levels": levels}


def text(document: Json) -> bytes:
    """Write it as the API server does: compact, and what HTML might take for a tag in six bytes."""
    found = msgspec.json.encode(document).replace(b"<", b"\\u003c")
    return found.replace(b'"DEEP"', b'{"f:a":' * 9000 + b"{}" + b"}" * 9000)


def page(version: int, *items: Json, continuation: str = "") -> bytes:
    metadata = {"resourceVersion": str(version), **({"continue": continuation} if continuation else {})}
    return text({"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": list(items)})


def line(change: str, item: Json) -> bytes:
    return text({"type": change, "object": NAMED | item}) + b"\n"


def chunks(data: bytes, size_bytes: int = 100_000) -> list[Step]:
    return [data[start : start + size_bytes] for start in range(0, len(data), size_bytes)]


@in_virtual_time
async def test_whatever_etcd_can_hold_is_read() -> None:
    """A pod of 400,000 `<` is 2.4 MB of JSON, and one of 1.5 MiB six times that: neither is a reason to list anew."""
    stream = [
        *chunks(line("MODIFIED", heavy("a", 12, 2_400_000))),
        *chunks(line("MODIFIED", heavy("b", 13, 6 * 1536 * 1024))),
        1e9,
    ]
    mirror, script, _ = await follow([page(7, node("a", 3))], [stream])
    assert mirror.nodes == {"a": "12", "b": "13"}
    assert script.asked() == [("list", None), ("watch", "7")]


@pytest.mark.slow
@in_virtual_time
async def test_what_is_larger_is_passed_over_by_itself_however_often_it_changes() -> None:
    """The watch goes on behind it, also if it is cut in the middle of it; what is gone is said to be."""
    size = MAX_OBJECT_BYTES + 200_000
    stream: list[Step] = [
        step for version in (10, 11, 12) for step in chunks(line("MODIFIED", heavy("x", version, size)))
    ]
    last = chunks(line("DELETED", heavy("x", 15, size)))
    mirror, script, _ = await follow(
        [page(7, node("a", 3))],
        [[*stream, line("MODIFIED", node("a", 14)), *last[:-1]], [line("MODIFIED", node("a", 16)), 1e9]],
    )
    assert mirror.nodes == {"a": "16"}
    assert mirror.unread_names == ["x", "x", "x", "-x"]
    assert script.asked() == [("list", None), ("watch", "7"), ("watch", "15")]


@pytest.mark.parametrize("strange", [odd, deep])
@in_virtual_time
async def test_an_object_that_makes_no_sense_hides_no_other(strange: Any) -> None:
    """Neither in a list nor in a watch."""
    mirror, script, _ = await follow(
        [page(7, node("a", 3), strange("x", 4), node("b", 5))],
        [[line("MODIFIED", strange("x", 12)), line("MODIFIED", node("a", 13)), 1e9]],
    )
    assert {name: mirror.nodes[name] for name in "ab"} == {"a": "13", "b": "5"}
    assert script.asked() == [("list", None), ("watch", "7")]


@in_virtual_time
async def test_what_cannot_be_read_is_not_taken_for_absent() -> None:
    """A list tells that it exists."""
    mirror, _, _ = await follow([page(7, node("a", 3), odd("x", 4))])
    assert mirror.nodes == {"a": "3"}
    assert mirror.listings[0].unread == (ObjectMeta(name="x", uid="uid-x", resource_version="4"),)


@in_virtual_time
async def test_a_page_of_one_object_that_is_too_long_is_passed_over() -> None:
    """Its beginning tells what the object is called, and where the list goes on."""
    long = Overlong(page(7, heavy("x", 4, 100_000), continuation="t")[:HEAD_BYTES], 50_000)
    mirror, script, _ = await follow([page(7, node("a", 3), continuation="s"), long, page(7, node("b", 5))])
    assert script.asked() == [("list", None), ("list", "s"), ("list", "t"), ("watch", "7")]
    assert mirror.nodes == {"a": "3", "b": "5"}
    assert [metadata.name for metadata in mirror.listings[0].unread] == ["x"]


@in_virtual_time
async def test_a_deep_object_is_read_but_for_who_manages_its_fields() -> None:
    """The one part that may be nested at will is the last one of the metadata, and nobody reads it."""
    mirror, _, _ = await follow([page(7, deep("x", 4))], [[line("MODIFIED", deep("y", 12)), 1e9]])
    assert mirror.nodes == {"x": "4", "y": "12"}
    assert mirror.unread_names == []


def test_only_who_manages_fields_is_left_out() -> None:
    """Whatever strings look like, and wherever the part stands among the metadata."""
    traps = {"}]},": ',"managedFields":[{', ',"managedFields":[{': "}],", "x": '}]},"spec":{'}
    managed = [{"manager": '}]},"a', "fieldsV1": {"f:}]},": {"f:}]}": {}}}}]
    for part in ({"managedFields": managed}, {"managedFields": managed, "selfLink": "/"}):
        whole = {"metadata": {"name": "p", "annotations": traps} | part, "spec": {"nodeName": "n1", "containers": []}}
        found = msgspec.json.decode(without_managed_fields(msgspec.json.encode(whole)))
        del whole["metadata"]["managedFields"]
        assert found == whole
        assert decoder(Pod)(msgspec.json.encode(whole)).spec.node_name == "n1"


@in_virtual_time
async def test_heavy_objects_are_counted_and_now_and_then_named() -> None:
    """One line a minute, with how many more there were."""
    fates: list[str] = []
    stream: list[Step] = [line("MODIFIED", heavy("a", 8 + number, 2 << 20)) for number in range(5)]
    script = Script(deque([page(7, heavy("a", 3, 2 << 20))]), deque([stream]))
    reflector = Reflector("nodes", script, Node, Mirror(), random=Random(1), told=fates.append)
    with capture_logs() as logged, suppress(TimeoutError):
        await asyncio.wait_for(reflector.run(), 30)
    assert fates == ["heavy"] * 6
    (said,) = [entry for entry in logged if entry["event"] == "a heavy object"]
    assert (said["resource"], said["object"]) == ("nodes", "a")


@dataclass
class Crowd:
    """A source of many heavy objects that notes how much of the loop's time others get meanwhile."""

    pages: int
    turns: list[int] = field(default_factory=list)
    now: int = 0

    async def others(self) -> None:
        while True:
            self.now += 1
            await asyncio.sleep(0)

    async def list_page(self, continuation: str | None) -> bytes:
        number = int(continuation or 0)
        self.turns.append(self.now)
        more = str(number + 1) if number < self.pages else ""
        return page(7, *(heavy(f"n{number}-{each}", 3, 2 << 20) for each in range(6)), continuation=more)

    async def latest_version(self) -> str:
        return "7"

    async def watch(self, resource_version: str) -> AsyncGenerator[bytes]:
        await asyncio.sleep(1e9)
        yield b""


@pytest.mark.slow
async def test_others_have_their_turns_while_heavy_objects_are_read() -> None:
    """After each of them, not after each page."""
    crowd = Crowd(3)
    others = asyncio.create_task(crowd.others())
    await list_objects(crowd, decoder(Node))
    others.cancel()
    assert [b - a >= 6 for a, b in zip(crowd.turns, crowd.turns[1:], strict=False)] == [True] * 3


class TestServerThatWasSetBack:
    """etcd was restored from a backup: versions are lower than those that were heard, and all objects are of then."""

    LIST = page(90, node("a", 90), node("b", 80))
    BACKUP = page(50, node("a", 40))

    async def _follow(self, streams: Sequence[list[Step]], latest: str = "50") -> tuple[Mirror, Script]:
        mirror, script = Mirror(), Script(deque([self.LIST, self.BACKUP]), deque(streams), latest=latest)
        reflector = Reflector("nodes", script, Node, mirror, random=Random(1))
        with suppress(TimeoutError):
            await asyncio.wait_for(reflector.run(), 30)
        return mirror, script

    @in_virtual_time
    async def test_is_listed_anew(self) -> None:
        """A watch from a version that is still to come would say nothing, and miss all that happens until then."""
        streams: list[list[Step]] = [[b""], [line("MODIFIED", node("a", 91)), Unavailable("reset")]]
        for stream in streams:
            mirror, script = await self._follow([stream])
            assert script.asked()[2:] == [("list", None), ("watch", "50")]
            assert mirror.nodes == {"a": "40"}
            assert [listing.version for listing in mirror.listings] == ["90", ""]

    @in_virtual_time
    async def test_one_that_was_not_is_followed_on(self) -> None:
        """A quiet stream, or one that was cut, costs a question and no list."""
        mirror, script = await self._follow([[b""], [b""]], latest="90")
        assert script.asked() == [("list", None), ("watch", "90"), ("watch", "90"), ("watch", "90")]
        assert script.doubts == 2
        assert mirror.replacements == 1

    @in_virtual_time
    async def test_bookmarks_leave_no_doubt(self) -> None:
        """Whoever says how far it is need not be asked."""
        mark = text({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "95"}}}) + b"\n"
        _, script = await self._follow([[mark], [mark]])
        assert script.doubts == 0

    @in_virtual_time
    async def test_whoever_notices_tells_the_others(self) -> None:
        """One of whom nothing was written lately has a version that the server has overtaken, and notices nothing by itself."""
        peers: list[Reflector[Node]] = []
        mirror, seldom = Mirror(), Script(deque([page(45, node("a", 30), node("b", 31)), self.BACKUP]), deque())
        often = Script(deque([self.LIST, self.BACKUP]), deque([[b"", 1.0, Unavailable("reset")]]), latest="50")
        for script, sink in ((seldom, mirror), (often, Mirror())):
            peers.append(Reflector("nodes", script, Node, sink, random=Random(1), peers=peers))
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(peer.run() for peer in peers)), 30)
        assert seldom.asked() == [("list", None), ("watch", "45"), ("list", None), ("watch", "50")]
        assert often.asked() == [("list", None), ("watch", "90"), ("list", None), ("watch", "50")]
        assert mirror.nodes == {"a": "40"}
        assert [listing.version for listing in mirror.listings] == ["45", ""]
