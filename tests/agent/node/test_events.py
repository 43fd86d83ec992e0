"""Events about our node: they cost whoever says them nothing, and a sentence that comes again is counted on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Event as Flag
from typing import Any

import pytest

from agent.errors import ApiError
from agent.node.events import NodeEvent, NodeEvents
from tests.cluster.polling import eventually

SICK = NodeEvent("GPUQuarantined", "GPU 3 (GPU-1a2b3c4d) takes no new pods: xid 79", "Warning")
WELL = NodeEvent("GPURecovered", "GPU 3 (GPU-1a2b3c4d) is healthy again", "Normal")


class Api:
    """Events as the API server keeps them; `failures` are raised first, one for each call."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.failures: list[ApiError] = []
        self.hangs = Flag()
        self.hangs.set()
        self.calls = 0
        self.loses_answers = False

    def post_event(self, body: dict[str, Any]) -> None:
        self._fail()
        name = body["metadata"]["name"]
        if name in self.events:
            raise ApiError(409, "already exists")
        self.events[name] = dict(body)
        if self.loses_answers:
            raise ApiError(0, "no answer")

    def count_event(self, name: str, fields: dict[str, Any]) -> None:
        self._fail()
        if name not in self.events:
            raise ApiError(404, "not found")
        self.events[name] |= fields

    def _fail(self) -> None:
        self.calls += 1
        self.hangs.wait()
        if self.failures:
            raise self.failures.pop(0)

    @property
    def told(self) -> list[tuple[str, int]]:
        return [(event["reason"], event["count"]) for event in self.events.values()]


class Said:
    """What is said, on a running thread."""

    def __init__(self, api: Api) -> None:
        self.results: list[str] = []
        self.events = NodeEvents("n1", api, lambda: datetime(2026, 1, 1, tzinfo=UTC), self.results.append, 0.01)
        self.events.start()

    def says(self, *events: NodeEvent) -> list[str]:
        """Return what became of them."""
        before = len(self.results)
        for event in events:
            self.events.say(event)
        eventually(lambda: len(self.results) == before + len(events))
        return self.results[before:]


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def said(api: Api) -> Iterator[Said]:
    """Stop in the end."""
    said = Said(api)
    yield said
    said.events.close()


def test_the_same_sentence_is_counted_on(api: Api, said: Said) -> None:
    """Another one is another event."""
    assert said.says(SICK, WELL, SICK, SICK) == ["posted"] * 4
    assert api.told == [("GPUQuarantined", 3), ("GPURecovered", 1)]


def test_what_the_api_server_has_forgotten_begins_anew(api: Api, said: Said) -> None:
    """It keeps events for an hour."""
    said.says(SICK, SICK)
    api.events.clear()
    assert said.says(SICK) == ["posted"]
    assert api.told == [("GPUQuarantined", 1)]


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_busy_server_is_asked_again(status: int, api: Api, said: Said) -> None:
    """A few times, and then no more."""
    api.failures = [ApiError(status, "busy")] * 2
    assert said.says(SICK) == ["posted"]
    api.failures = [ApiError(status, "busy")] * 9
    assert said.says(WELL) == ["lost"]
    assert len(api.failures) == 6


def test_what_is_refused_is_not_tried_again(api: Api, said: Said) -> None:
    """An agent that may not post events does all else."""
    api.failures = [ApiError(403, "forbidden")]
    assert said.says(SICK) == ["lost"]
    assert api.calls == 1


def test_an_answer_that_was_lost_makes_no_second_event(api: Api, said: Said) -> None:
    """The try after it finds the event there."""
    api.loses_answers = True
    assert said.says(SICK) == ["posted"]
    assert api.told == [("GPUQuarantined", 1)]


def test_a_server_that_hangs_holds_nobody_up(api: Api, said: Said) -> None:
    """What is too much to remember is lost, and counted; the newest is not, for it says what holds of a GPU."""
    api.hangs.clear()
    began = time.monotonic()
    for number in range(300):
        said.events.say(NodeEvent("GPUSuspect", f"{number}", "Warning"))
    assert time.monotonic() - began < 1.0
    assert set(said.results) == {"lost"}
    api.hangs.set()
    eventually(lambda: len(said.results) == 300)
    notes = [event["message"] for event in api.events.values()]
    assert (len(notes), notes[-1]) == (said.results.count("posted"), "299")
