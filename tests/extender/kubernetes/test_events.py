"""Events tell people what came of a request, and never stand in anybody's way."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from extender.features.sick_gpus.events import SICK
from extender.kubernetes import events
from extender.kubernetes.events import Event, EventRecorder, PodName, placed, to_request, unsatisfied
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from tests.extender.virtual_time import in_virtual_time
from topology.annotations.records import PlacementRecord
from topology.bandwidth.predict import Bandwidth
from topology.node.links import Affinity

POD = PodName("ml", "train", "u1")


def bodies(requests: list[Request]) -> list[dict[str, Any]]:
    return [json.loads(request.body or b"") for request in requests]


def pods(count: int) -> list[PodName]:
    return [PodName("ml", f"p{number}", f"u{number}") for number in range(count)]


class Server:
    """Takes requests, slowly or not at all."""

    def __init__(self, status: int = 201, error: Exception | None = None) -> None:
        self.requests: list[Request] = []
        self._status, self._error = status, error

    async def send(self, request: Request) -> tuple[int, bytes]:
        self.requests.append(request)
        if self._error:
            raise self._error
        return self._status, b"{}"


async def run_for(recorder: EventRecorder, seconds: float) -> None:
    running = asyncio.create_task(recorder.run())
    await asyncio.sleep(seconds)
    running.cancel()


def test_placed_says_how_many_where_and_what_for() -> None:
    """The sentence holds what people ask: how near, how fast."""
    record = PlacementRecord({"a": ("G1", "G2"), "b": ("G2",)}, Affinity.NVLINK, Bandwidth(180.0, 200.0, 230.4))
    assert placed(POD, "n1", record).note == (
        "2 GPUs of n1, joined by nvlink, 180 to 230 GB/s all-reduce bus bandwidth predicted"
    )


def test_an_event_names_three_reasons_and_how_many_nodes_have_others() -> None:
    """The most frequent ones, and one node is one node."""
    refusals = Counter({"no ring": 1, "too slow": 7, "full": 3, "closed": 1, "old": 1})
    assert unsatisfied(POD, refusals).note == (
        "7 nodes: too slow; 3 nodes: full; 1 node: no ring; 2 nodes: other reasons"
    )
    assert unsatisfied(POD, Counter({"full": 2})).note == "2 nodes: full"


def test_an_event_is_about_exactly_one_pod() -> None:
    """Kubectl finds it by the pod's UID; a namesake does not get it."""
    request = to_request(unsatisfied(POD, Counter({"no ring": 2})), datetime(2026, 11, 21, 8, 0, tzinfo=UTC))
    (body,) = bodies([request])
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/ml/events")
    assert body["involvedObject"]["uid"] == "u1"
    assert (body["type"], body["reason"], body["message"]) == ("Warning", "GPUTopologyUnsatisfied", "2 nodes: no ring")
    assert body["lastTimestamp"] == "2026-11-21T08:00:00Z"


@pytest.mark.parametrize("name", ["a" * 253, "a" * 199 + ".b" * 20])
def test_an_event_has_a_valid_name_whatever_the_pods(name: str) -> None:
    """A DNS name of at most 253 characters, and a new one each time."""
    event = Event(PodName("ml", name, "u"), "R", "x" * 5000, "Normal")
    first, second = bodies([to_request(event, datetime.now(UTC)) for _ in range(2)])
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert len(first["metadata"]["name"]) <= 253
    assert ".." not in first["metadata"]["name"]
    assert len(first["message"]) == events.MAX_NOTE_CHARACTERS


@in_virtual_time
async def test_a_pod_that_is_tried_again_and_again_hears_of_it_once() -> None:
    """kube-scheduler may retry fifty times a second; after a while it is said again."""
    server = Server()
    recorder = EventRecorder(server.send)
    running = asyncio.create_task(recorder.run())
    for attempt in range(400):
        recorder.record(unsatisfied(POD, Counter([f"attempt {attempt}"])))
        await asyncio.sleep(1)
    running.cancel()
    assert [body["message"] for body in bodies(server.requests)] == ["1 node: attempt 0", "1 node: attempt 300"]


@in_virtual_time
async def test_a_case_is_told_once_whoever_tells_it() -> None:
    """Its event has one name, so what another extender has posted is there already: told, and not lost."""
    server = Server(status=409)
    recorder = EventRecorder(server.send)
    cases = [Event(POD, "GPUSick", "holds a sick GPU", "Warning", case) for case in ("GPU-1@9", "GPU-1@9", "GPU-2@9")]
    for event in cases:
        recorder.record(event)
    await run_for(recorder, 5)
    assert recorder.dropped == 0
    assert len({body["metadata"]["name"] for body in bodies(server.requests)}) == len(server.requests) == 2
    [again] = bodies([to_request(cases[0], datetime.now(UTC))])
    assert again["metadata"]["name"] == bodies(server.requests)[0]["metadata"]["name"]


@in_virtual_time
async def test_a_burst_is_posted_at_a_bounded_rate() -> None:
    """The API server gets more important things from us."""
    server = Server()
    recorder = EventRecorder(server.send, per_second=10)
    for pod in pods(100):
        recorder.record(unsatisfied(pod, Counter(["no"])))
    await run_for(recorder, 2.05)
    assert 19 <= len(server.requests) <= 21


@in_virtual_time
async def test_a_full_queue_drops_and_counts() -> None:
    """Recording never waits and never grows without end."""
    recorder = EventRecorder(Server().send)
    for pod in pods(events.QUEUE + 7):
        recorder.record(unsatisfied(pod, Counter(["no"])))
    assert recorder.dropped == 7


def sick(pod: PodName) -> Event:
    return Event(pod, SICK, "holds a sick GPU", "Warning", "GPU-1@9", is_of_health=True)


async def run_flooded(recorder: EventRecorder, minutes: int, *after: Event) -> None:
    """Have 12,000 waiting pods of one tenant refused once in five minutes each; the events come in the middle of a minute."""
    running = asyncio.create_task(recorder.run())
    waiting, refusals = pods(12_000), Counter({"no room": 3})
    for second in range(60 * minutes):
        for pod in waiting[second * 40 % 12_000 :][:40]:
            recorder.record(unsatisfied(pod, refusals))
        if second % 60 == 30 and second // 60 < len(after):
            recorder.record(after[second // 60])
        await asyncio.sleep(1)
    running.cancel()


@pytest.mark.slow
@in_virtual_time
async def test_pods_that_wait_hold_up_no_event_about_a_sick_gpu() -> None:
    """Not even the same tenant's: each arrives within a second or two."""
    server = Server()
    recorder = EventRecorder(server.send)
    await run_flooded(recorder, 10, *map(sick, pods(10)))
    assert sum(body["reason"] == SICK for body in bodies(server.requests)) == 10
    assert recorder.dropped > 1000


@pytest.mark.slow
@in_virtual_time
async def test_pods_that_wait_hold_up_no_event_of_another_namespace() -> None:
    """Namespaces have their turns, and only the one with the most events loses some."""
    server = Server()
    recorder = EventRecorder(server.send)
    theirs = [PodName("good", f"g{number}", f"g{number}") for number in range(10)]
    await run_flooded(recorder, 10, *(unsatisfied(pod, Counter(["no"])) for pod in theirs))
    assert sum(body["metadata"]["namespace"] == "good" for body in bodies(server.requests)) == 10
    assert recorder.dropped > 1000


@in_virtual_time
async def test_an_event_that_had_to_make_room_is_news_again() -> None:
    """Nobody has heard of it."""
    recorder = EventRecorder(Server().send)
    first, *more = pods(events.QUEUE + 1)
    for pod in (first, *more):
        recorder.record(unsatisfied(pod, Counter(["no"])))
    assert recorder.is_news(first.uid, events.UNSATISFIED)
    assert not any(recorder.is_news(pod.uid, events.UNSATISFIED) for pod in more)


@in_virtual_time
async def test_an_event_about_health_that_finds_no_room_is_recorded_again_later() -> None:
    """It counts as recorded once it is queued."""
    server = Server()
    recorder = EventRecorder(server.send, per_second=1000)
    *queued, late = pods(events.HEALTH_QUEUE + 1)
    assert all(recorder.record(sick(pod)) for pod in queued)
    assert not recorder.record(sick(late))
    assert (recorder.is_news(late.uid, SICK, "GPU-1@9"), recorder.dropped) == (True, 1)
    await run_for(recorder, 1)
    assert recorder.record(sick(late))
    assert not recorder.is_news(late.uid, SICK, "GPU-1@9")


@pytest.mark.parametrize("failing", [Server(status=503), Server(status=429), Server(error=Unavailable("refused"))])
@in_virtual_time
async def test_an_event_about_health_is_tried_again_where_the_server_is_busy(failing: Server) -> None:
    """It would be lost for good: its case is recorded once."""
    well, seconds = Server(), asyncio.get_running_loop().time

    async def send(request: Request) -> tuple[int, bytes]:
        return await (failing if seconds() < events.RETRY_SECONDS else well).send(request)

    recorder = EventRecorder(send)
    recorder.record(sick(POD))
    recorder.record(unsatisfied(POD, Counter(["no"])))
    await run_for(recorder, 3 * events.RETRY_SECONDS)
    assert [body["reason"] for body in bodies(well.requests)] == [SICK]
    assert (len(failing.requests), recorder.dropped) == (2, 1)


@pytest.mark.parametrize(("status", "tries"), [(503, events.HEALTH_TRIES), (403, 1)])
@in_virtual_time
async def test_an_event_about_health_is_lost_in_the_end(status: int, tries: int) -> None:
    """What is forbidden at once; and a later one begins anew."""
    server = Server(status)
    recorder = EventRecorder(server.send)
    for number in (1, 2):
        recorder.record(sick(POD))
        await run_for(recorder, max(events.QUIET_SECONDS, 5 * events.RETRY_SECONDS))
        assert (len(server.requests), recorder.dropped) == (number * tries, number)


@pytest.mark.parametrize("server", [Server(status=403), Server(error=Unavailable("refused"))], ids=["403", "down"])
@in_virtual_time
async def test_what_the_server_does_not_take_is_lost_and_the_rest_goes_on(server: Server) -> None:
    """An event is worth one attempt."""
    recorder = EventRecorder(server.send)
    for pod in pods(3):
        recorder.record(unsatisfied(pod, Counter(["no"])))
    await run_for(recorder, 5)
    assert (len(server.requests), recorder.dropped) == (3, 3)
