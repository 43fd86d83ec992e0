"""However much comes at once, others have their turns; an event that tells nothing new costs next to nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from extender.cluster.objects.kinds import Node, ObjectMeta
from extender.cluster.objects.versions import NOTHING_MORE, Listing
from extender.kit.turns import TURN_SECONDS
from extender.kubernetes.reflector import Reflector
from tests.extender.kubernetes.test_reflector import Mirror, Script, Step, line, node, page
from tests.extender.virtual_time import VirtualTimeLoop, in_virtual_time

WORK_SECONDS = TURN_SECONDS / 4
"""For each object, in the tests' own time."""
MANY = 200
FEW_TURNS = 4 * TURN_SECONDS
"""A timer, the future that it sets and the task that waits for that come one after the other, with a turn between."""


def work() -> None:
    """Take some of the loop's time, as reading an object does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.advance(WORK_SECONDS)


@dataclass
class Busy(Mirror):
    """A cache that needs time for each object, and takes lists in steps."""

    steps: int = 0

    def replacing(self, objects: Sequence[Node], listing: Listing) -> Iterator[None]:
        for _ in objects:
            work()
            self.steps += 1
            yield
        super().replaced(objects, listing)

    def replaced(self, objects: Sequence[Node], listing: Listing = NOTHING_MORE) -> None:
        raise AssertionError("taken in one piece")

    def changed(self, item: Node) -> None:
        work()
        super().changed(item)


@dataclass
class Others:
    """Something that is to be done every moment, and how late it was each time."""

    late: list[float] = field(default_factory=list)

    async def run(self) -> None:
        clock = asyncio.get_running_loop()
        while True:
            due = clock.time() + WORK_SECONDS
            await asyncio.sleep(WORK_SECONDS)
            self.late.append(clock.time() - due)

    @property
    def turns(self) -> int:
        """How many they had while something was worked out."""
        return sum(seconds > 0 for seconds in self.late)


async def watched(
    sink: Mirror, pages: Sequence[bytes], streams: Sequence[list[Step]], **more: Any
) -> tuple[Others, Script]:
    """Run a reflector beside others."""
    script, others = Script(deque(pages), deque(streams)), Others()
    beside = asyncio.create_task(others.run())
    with suppress(TimeoutError):
        await asyncio.wait_for(Reflector("nodes", script, Node, sink, random=Random(1), **more).run(), 1.0)
    beside.cancel()
    return others, script


@in_virtual_time
async def test_a_chunk_of_many_events_lets_others_have_their_turns() -> None:
    """Nobody waits for longer than a few turns, and nothing is missed."""
    chunk = b"".join(line("MODIFIED", node(f"n{number}", 8 + number)) for number in range(MANY))
    sink = Busy()
    others, _ = await watched(sink, [page(7)], [[chunk, 1e9]])
    assert len(sink.nodes) == MANY
    assert max(others.late) <= FEW_TURNS
    assert others.turns >= MANY * WORK_SECONDS / FEW_TURNS


@in_virtual_time
async def test_a_list_of_many_objects_lets_others_have_their_turns() -> None:
    """While it is read, and while it is taken in."""
    sink = Busy()

    def keep(item: Node) -> Node:
        work()
        return item

    others, _ = await watched(sink, [page(7, *(node(f"n{number}", 1) for number in range(MANY)))], [], keep=keep)
    assert (len(sink.nodes), sink.steps, sink.replacements) == (MANY, MANY, 1)
    assert max(others.late) <= FEW_TURNS
    assert others.turns >= 2 * MANY * WORK_SECONDS / FEW_TURNS


@in_virtual_time
async def test_a_version_that_is_known_already_is_not_read() -> None:
    """The reply to our own write has told it; the watch goes on from there. The last version of an object is always read."""

    def begun(change: str, name: str, version: int) -> bytes:
        metadata = f'"metadata":{{"name":"{name}","uid":"uid-{name}","resourceVersion":"{version}"'
        return f'{{"type":"{change}","object":{{"kind":"Node","apiVersion":"v1",{metadata}'.encode()

    told = list[tuple[str, str, str]]()

    def knows(metadata: ObjectMeta) -> bool:
        told.append((metadata.name, metadata.uid, metadata.resource_version))
        return metadata.name == "ours"

    stream: list[Step] = [
        begun("MODIFIED", "ours", 8) + b", which nobody reads\n",
        begun("MODIFIED", "theirs", 9) + b"}}}\n",
        begun("DELETED", "ours", 10) + b"}}}\n",
        begun("ADDED", "ours", 11) + b", which nobody reads\n",
    ]
    sink = Mirror({"ours": "8"})
    sink.replaced = lambda objects, listing=NOTHING_MORE: None  # type: ignore[method-assign]
    _, script = await watched(sink, [page(7)], [stream], knows=knows)
    assert sink.nodes == {"theirs": "9"}
    assert script.asked()[-1] == ("watch", "11")
    assert told == [("ours", "uid-ours", "8"), ("theirs", "uid-theirs", "9"), ("ours", "uid-ours", "11")]
