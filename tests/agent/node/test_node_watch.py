"""An extender that asks for a look is answered at once, and the answer proves that the look is later than the question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Event

import pytest

from agent.errors import ApiError
from agent.node.look import Look
from agent.node.publish import Publication
from agent.node.watch import NodeVersion, NodeWatch
from tests.agent.builders import discovery
from topology.annotations import keys
from topology.annotations.records import Holder, Observed, decode_observed
from topology.node.status import DevicePluginStatus, Mode

HELD = {"GPU-0": Holder("ml", "train-0", "main")}


class Node:
    """What an agent writes that hears of its node; every write succeeds."""

    def __init__(self) -> None:
        self.annotations: dict[str, str] = {}
        self.publication = Publication(lambda: 0.5, 300.0)
        self.publication.learned({}, 0.0)
        self.writes = 0

    def turn(self, now: float, heard: NodeVersion | None, held: Mapping[str, Holder] | None = None) -> bool:
        """Publish; returns whether anything was written."""
        look = Look(DevicePluginStatus(Mode.OBSERVE, ready=True), held)
        patch = self.publication.patch(discovery(), now, look, heard)
        if patch:
            self.writes += 1
            self.annotations |= patch.annotations
            self.publication.learned(self.annotations, now)
        return patch is not None

    @property
    def observed(self) -> Observed:
        return decode_observed(self.annotations[keys.OBSERVED])


def test_question_is_answered_at_once_and_once() -> None:
    """The answer names the version that was heard of before the look, which is later than the one that was asked about."""
    node = Node()
    node.turn(0.0, NodeVersion("7"), HELD)
    assert node.turn(1.0, NodeVersion("9", look="8"), HELD)
    assert (node.observed.gpus, node.observed.node_version) == (HELD, "9")
    assert not node.turn(2.0, NodeVersion("10", look="8"), HELD)
    assert node.turn(3.0, NodeVersion("12", look="11"), HELD)


def test_report_that_was_made_anyway_is_an_answer() -> None:
    """A change told it already."""
    node = Node()
    node.turn(0.0, NodeVersion("9", look="8"), HELD)
    assert not node.turn(1.0, NodeVersion("9", look="8"), HELD)


def test_without_a_look_there_is_no_answer() -> None:
    """The kubelet did not say what is held; it will."""
    node = Node()
    node.turn(0.0, NodeVersion("7"), {})
    assert not node.turn(1.0, NodeVersion("9", look="8"), None)
    assert node.turn(2.0, NodeVersion("9", look="8"), {})


@pytest.mark.parametrize("look", ["", "9", "10", "99999999999999999999", "soon"])
def test_what_cannot_be_a_question_is_none(look: str) -> None:
    """A version that the node has not even reached would be asked for ever."""
    node = Node()
    node.turn(0.0, None, {})
    assert not node.turn(1.0, NodeVersion("9", look), {})


def test_a_quiet_hour_costs_twelve_writes() -> None:
    """However often the node changes, and with an old question on it."""
    node = Node()
    node.turn(0.0, NodeVersion("9", look="8"), HELD)
    for now in range(15, 3616, 15):
        node.turn(float(now), NodeVersion(str(now), look="8"), HELD)
    assert node.writes == 1 + 12


def heard_by(*watches: list[NodeVersion] | ApiError) -> list[NodeVersion]:
    """Return what an agent hears of these watches, one after the other."""
    heard, over, left = list[NodeVersion](), Event(), iter(watches)

    def follow() -> Iterator[NodeVersion]:
        told = next(left, None)
        if told is None:
            over.set()
            raise ApiError(0, "nobody there")
        if isinstance(told, ApiError):
            raise told
        yield from told

    watch = NodeWatch(follow, heard.append, lambda: None, lambda: 0.0)
    watch.start()
    assert over.wait(20.0)
    watch.close()
    return heard


@pytest.mark.slow
def test_watch_that_ends_or_fails_is_begun_again() -> None:
    """What happened in between is heard then."""
    first, second = NodeVersion("7"), NodeVersion("9", "8")
    assert heard_by([first], ApiError(403, "forbidden"), [second]) == [first, second]


@pytest.mark.slow
def test_server_that_is_behind_takes_nothing_back() -> None:
    """A report that names an older version would be no answer."""
    newest = NodeVersion("10", "8")
    assert heard_by([newest], [NodeVersion("9", "7"), newest]) == [newest]
