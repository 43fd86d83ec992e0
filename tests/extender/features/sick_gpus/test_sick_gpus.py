"""Pods hear of it when their GPUs fall sick, their groups too; who asks for it is evicted, and nobody else, ever."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.processes.client import MERGE_PATCH
from benchmarks.simulated.double.resources import EVENTS, PODS
from benchmarks.simulated.fleet import SimulatedNode
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.features.sick_gpus.events import SICK
from extender.features.sick_gpus.feature import EVICTIONS, PACE_SECONDS, TOLD_SECONDS, SickGpus
from extender.kubernetes import events
from extender.kubernetes.events import Event, EventRecorder, PodName
from extender.kubernetes.evictor import TRIES
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from extender.telemetry.metrics import Metrics
from tests.extender.builders import at, claim, cluster, gpus, node, pod
from tests.extender.polling import until
from tests.extender.rounds import at_work
from tests.extender.serving import Running, serving
from tests.extender.virtual_time import in_virtual_time
from topology.annotations import keys
from topology.annotations.records import Holder, Observed, encode_observed
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, NodeGpuStatus

NOW = 100.0
SINCE = int(at(NOW).wall)
EVICTABLE = {keys.EVICT_WHEN_SICK: "true"}
NO_BUDGET = 429


def holder(name: str, on: str, *positions: int, **wants: str) -> Pod:
    """Build a pod that runs with these GPUs."""
    placed = gpus(on, *positions)
    return pod(name, len(placed), on=on, placed=placed, phase="Running", terminated=False, wants=wants)


def holding(name: str, *sick: int, since: int = SINCE, reports: int = 1, **pods: Sequence[int]) -> Node:
    """Build a node on which the agent sees these pods with their GPUs, some of which are sick."""
    uuids = {uuid: position for position, uuid in enumerate(gpus(name, *range(8)))}
    said = [
        GpuStatus(uuid, healthy=False, reasons=("xid 79, needs a reset",), sick_since=since)
        for uuid, position in uuids.items()
        if position in sick
    ]
    held = {gpu: owner for owner, positions in pods.items() for gpu in gpus(name, *positions)}
    status = encode_status(NodeGpuStatus(reports, tuple(said)))
    claims = tuple(claim(gpu, owner) for gpu, owner in held.items())
    return node(name, claims=claims, held=held, version=reports, status=status)


class Api:
    """Takes events, and answers evictions with these status codes; after those, with a 201."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.events: list[dict[str, Any]] = []
        self.evictions: list[str] = []

    async def send(self, request: Request) -> tuple[int, bytes]:
        body = json.loads(request.body or b"")
        if body["kind"] == "Event":
            names = [event["metadata"]["name"] for event in self.events]
            if body["metadata"]["name"] in names:
                return 409, b"{}"
            self.events.append(body)
            return 201, b"{}"
        self.evictions.append(body["metadata"]["name"])
        status = self.answers.pop(0) if self.answers else 201
        if not status:
            raise Unavailable("nobody answers")
        return status, msgspec.json.encode({"message": f"answer {status}"})

    def told(self, reason: str) -> list[str]:
        """Return which pods heard of it."""
        return [event["involvedObject"]["name"] for event in self.events if event["reason"] == reason]

    def said(self, reason: str, name: str) -> str:
        """Return what a pod heard last."""
        about = [event for event in self.events if event["involvedObject"]["name"] == name]
        return str([event["message"] for event in about if event["reason"] == reason][-1])


class Life:
    """One extender's rounds, on the loop's own clock."""

    def __init__(self, state: ClusterState, api: Api, *, may_evict: bool = False) -> None:
        self.state = state
        self.api = api
        self.metrics = Metrics("digest", [EVICTIONS])
        self.recorder = EventRecorder(api.send)
        loop = asyncio.get_running_loop()
        self.sick = SickGpus(
            state=state,
            send=api.send,
            events=self.recorder,
            metrics=self.metrics,
            clock=lambda: at(NOW + loop.time()),
            may_evict=may_evict,
        )

    async def rounds(self, seconds: float) -> None:
        """Go on for so long, round by round."""
        posting = asyncio.create_task(self.recorder.run())
        async with at_work(self.sick, failed=pytest.fail):
            await asyncio.sleep(seconds)
        posting.cancel()


@in_virtual_time
async def test_a_pod_is_told_once_of_a_gpu_that_falls_sick() -> None:
    """Which one, why, and that nobody ends the pod; the pod beside it hears nothing."""
    state = cluster(holding("n1", 3, p=(2, 3), q=(4,)), holder("p", "n1", 2, 3), holder("q", "n1", 4))
    life = Life(state, Api(), may_evict=True)
    await life.rounds(2000)
    assert life.api.told("GPUSick") == ["p"]
    assert life.api.said("GPUSick", "p").startswith("holds a sick GPU of n1, GPU 3 (GPU-")
    assert "xid 79, needs a reset; it goes on, and nobody ends it" in life.api.said("GPUSick", "p")
    assert life.api.evictions == []


@in_virtual_time
async def test_each_change_is_told_and_what_fell_sick_together_is_one_event() -> None:
    """A second GPU, and the first one when it falls sick again."""
    state = cluster(holding("n1", 2, 3, p=(1, 2, 3)), holder("p", "n1", 1, 2, 3))
    life = Life(state, Api())
    await life.rounds(2)
    assert "2 sick GPUs of n1, GPU 2 (" in life.api.said("GPUSick", "p")
    for reports, (sick, since) in enumerate([((1, 2, 3), SINCE), ((), SINCE), ((2,), SINCE + 60)], start=2):
        state.nodes.changed(holding("n1", *sick, since=since, reports=reports, p=(1, 2, 3)))
        await life.rounds(2)
        if reports == 2:
            assert "holds a sick GPU of n1, GPU 1 (" in life.api.said("GPUSick", "p")
    assert life.api.told("GPUSick") == ["p"] * 3
    assert "a sick GPU of n1, GPU 2 (" in life.api.said("GPUSick", "p")


@in_virtual_time
async def test_a_pod_whose_event_found_no_room_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as there is room: nobody has heard of it before."""
    monkeypatch.setattr(events, "HEALTH_QUEUE", 10)
    state = cluster(holding("n1", 3, p=(3,)), holder("p", "n1", 3))
    life = Life(state, Api())
    for number in range(10):
        life.recorder.record(
            Event(PodName("ml", f"f{number}", f"f{number}"), SICK, "sick", "Warning", is_of_health=True)
        )
    await life.sick.round()
    assert life.recorder.dropped == 1
    await life.rounds(5)
    assert "p" in life.api.told(SICK)


@in_virtual_time
async def test_the_other_members_of_its_group_are_told() -> None:
    """Those that run, wherever; not those that wait or have ended, and not another group's."""
    ours, theirs = {keys.GROUP: "llama"}, {keys.GROUP: "bert"}
    ended = pod("e", 1, on="n2", placed=gpus("n2", 5), phase="Succeeded", terminated=True, wants=ours)
    state = cluster(
        holding("n1", 3, p=(3,), near=(4,)),
        holding("n2", far=(0,), other=(1,)),
        holder("p", "n1", 3, **ours),
        holder("near", "n1", 4, **ours),
        holder("far", "n2", 0, **ours),
        holder("other", "n2", 1, **theirs),
        pod("waits", 1, wants=ours),
        ended,
    )
    life = Life(state, Api())
    await life.rounds(100)
    assert sorted(life.api.told("GroupMemberSick")) == ["far", "near"]
    assert life.api.told("GPUSick") == ["p"]
    assert life.api.said("GroupMemberSick", "far").startswith("p of the same group holds a sick GPU of n1, GPU 3 (")


@in_virtual_time
async def test_a_gpu_that_is_closed_and_not_sick_is_no_news() -> None:
    """A person's cordon, or a device plugin that holds it back."""
    cordoned, sick = gpus("n1", 3, 4)
    said = GpuStatus(cordoned, healthy=False, reasons=("cordoned",)), GpuStatus(sick, healthy=False, sick_since=SINCE)
    closed = node(
        "n1", claims=(claim(cordoned, "p"),), held={cordoned: "p"}, status=encode_status(NodeGpuStatus(1, said))
    )
    life = Life(cluster(closed, holder("p", "n1", 3, **EVICTABLE)), Api(), may_evict=True)
    await life.rounds(100)
    assert (life.api.events, life.api.evictions) == ([], [])


@in_virtual_time
async def test_a_node_that_leaves_or_is_well_again_is_forgotten() -> None:
    """Whatever was told of it."""
    sick = holding("n1", 3, p=(3,)), holding("n2", 3, q=(3,))
    state = cluster(*sick, holder("p", "n1", 3), holder("q", "n2", 3))
    life = Life(state, Api())
    await life.rounds(2)
    state.nodes.deleted(sick[0])
    state.nodes.changed(holding("n2", reports=2, q=(3,)))
    await life.rounds(2)
    assert list(state.conditions.sick) == []
    assert sorted(life.api.told("GPUSick")) == ["p", "q"]


@in_virtual_time
async def test_several_extenders_tell_it_once() -> None:
    """And so does one that starts anew, however long afterwards."""
    state = cluster(holding("n1", 3, p=(3,)), holder("p", "n1", 3))
    api = Api()
    await asyncio.gather(Life(state, api).rounds(5), Life(state, api).rounds(5))
    await Life(state, api).rounds(5)
    assert api.told("GPUSick") == ["p"]
    api.events.clear()  # after an hour the API server has forgotten them
    await asyncio.sleep(TOLD_SECONDS)
    late = Life(state, api)
    await late.rounds(5)
    assert (api.told("GPUSick"), late.recorder.dropped) == ([], 0)


@in_virtual_time
async def test_a_pod_that_asks_for_it_is_evicted() -> None:
    """Once, with its reason; the event before says that it will be."""
    state = cluster(
        holding("n1", 3, p=(3,), q=(4,)), holder("p", "n1", 3, **EVICTABLE), holder("q", "n1", 4, **EVICTABLE)
    )
    life = Life(state, Api(), may_evict=True)
    await life.rounds(5)
    assert life.api.evictions == ["p"]
    assert "it asks to be evicted, and will be" in life.api.said("GPUSick", "p")
    assert "evicted, as it asks: it holds a sick GPU of n1" in life.api.said("GPUPodEvicted", "p")
    assert b'gputopo_evictions_total{answer="evicted"} 1.0' in life.metrics.exposition()


@pytest.mark.parametrize("wants", [{}, {keys.EVICT_WHEN_SICK: "false"}, {keys.EVICT_WHEN_SICK: "yes"}])
@in_virtual_time
async def test_a_pod_that_does_not_ask_is_never_evicted(wants: dict[str, str]) -> None:
    """However long its GPU is sick."""
    life = Life(cluster(holding("n1", 3, p=(3,)), holder("p", "n1", 3, **wants)), Api(), may_evict=True)
    await life.rounds(2000)
    assert life.api.evictions == []


@in_virtual_time
async def test_where_it_is_switched_off_nobody_is_evicted() -> None:
    """And who asks for it hears that."""
    life = Life(cluster(holding("n1", 3, p=(3,)), holder("p", "n1", 3, **EVICTABLE)), Api())
    await life.rounds(100)
    assert life.api.evictions == []
    assert "which is switched off here" in life.api.said("GPUSick", "p")


@in_virtual_time
async def test_only_what_the_agent_has_seen_is_evicted() -> None:
    """A plan may be another than what the device plugin did; and what goes already needs no push."""
    going = msgspec.structs.replace(
        goer := holder("goes", "n1", 4, **EVICTABLE),
        metadata=msgspec.structs.replace(goer.metadata, deletion_timestamp="2026-01-02T00:00:00Z"),
    )
    state = cluster(holding("n1", 3, 4, goes=(4,)), holder("planned", "n1", 3, **EVICTABLE), going)
    life = Life(state, Api(), may_evict=True)
    await life.rounds(100)
    assert sorted(life.api.told("GPUSick")) == ["goes", "planned"]
    assert life.api.evictions == []


@pytest.mark.parametrize("answer", [NO_BUDGET, 500, 0])
@in_virtual_time
async def test_a_budget_is_respected_and_asked_again_later(answer: int) -> None:
    """After ten seconds, and then less and less often; the pod hears why it is still there."""
    state = cluster(holding("n1", 3, p=(3,)), holder("p", "n1", 3, **EVICTABLE))
    life = Life(state, Api(answer, answer), may_evict=True)
    await life.rounds(9)
    assert len(life.api.evictions) == 1
    assert "it is tried again" in life.api.said("GPUPodNotEvicted", "p")
    await life.rounds(40)
    assert len(life.api.evictions) == 3
    assert life.api.told("GPUPodEvicted") == ["p"]


@pytest.mark.slow
@in_virtual_time
async def test_a_budget_that_never_allows_it_is_asked_so_often_and_no_more() -> None:
    """The pod goes on; another one has its turn all the same."""
    state = cluster(
        holding("n1", 3, 4, p=(3,), q=(4,)), holder("p", "n1", 3, **EVICTABLE), holder("q", "n1", 4, **EVICTABLE)
    )
    life = Life(state, Api(NO_BUDGET), may_evict=True)
    await life.rounds(3)
    assert life.api.evictions == ["p", "q"]
    state = cluster(holding("n1", 3, p=(3,)), holder("p", "n1", 3, **EVICTABLE))
    life = Life(state, Api(*[NO_BUDGET] * 100), may_evict=True)
    await life.rounds(8000)
    assert life.api.evictions == ["p"] * TRIES
    assert "it is not tried again" in life.api.said("GPUPodNotEvicted", "p")


@in_virtual_time
async def test_what_is_forbidden_is_not_tried_again() -> None:
    """A role without the right, or somebody's policy."""
    state = cluster(holding("n1", 3, p=(3,)), holder("p", "n1", 3, **EVICTABLE))
    life = Life(state, Api(403), may_evict=True)
    await life.rounds(1000)
    assert life.api.evictions == ["p"]
    assert "answer 403; it is not tried again" in life.api.said("GPUPodNotEvicted", "p")


@in_virtual_time
async def test_evictions_keep_a_pace() -> None:
    """Many GPUs that fall sick at once have one cause, and time for somebody to look."""
    names = [f"p{position}" for position in range(8)]
    uuids = gpus("n1", *range(8))
    status = encode_status(NodeGpuStatus(1, tuple(GpuStatus(gpu, healthy=False, sick_since=SINCE) for gpu in uuids)))
    claims = tuple(claim(gpu, name) for gpu, name in zip(uuids, names, strict=True))
    n1 = node("n1", claims=claims, held=dict(zip(uuids, names, strict=True)), status=status)
    state = cluster(n1, *(holder(name, "n1", position, **EVICTABLE) for position, name in enumerate(names)))
    life = Life(state, Api(), may_evict=True)
    await life.rounds(2 * PACE_SECONDS + 3)
    assert len(life.api.evictions) == 3
    assert len(set(life.api.evictions)) == 3


@in_virtual_time
async def test_a_pod_whose_gpu_is_well_again_stays() -> None:
    """Nobody remembers a request that has lost its reason."""
    state = cluster(holding("n1", 3, p=(3,)), holder("p", "n1", 3, **EVICTABLE))
    life = Life(state, Api(NO_BUDGET), may_evict=True)
    await life.rounds(2)
    state.nodes.changed(holding("n1", reports=2, p=(3,)))
    await life.rounds(100)
    assert life.api.evictions == ["p"]


@pytest.mark.slow
async def test_a_served_extender_tells_and_evicts(tmp_path: Path) -> None:
    """From the agent's annotation to the pod's end, on real sockets; the budget is the API server's to keep."""
    n1 = SimulatedNode("n1", "t4-4", used=(0, 1))
    uuids = [gpu.uuid for gpu in n1.topology.gpus]
    async with serving(tmp_path, n1, settings={"sickGpus.evict": "true"}) as extender:
        occupant = "/api/v1/namespaces/default/pods/n1-occupant"
        asks = {"metadata": {"annotations": EVICTABLE}}
        (await extender.api.call("PATCH", occupant, asks, content_type=MERGE_PATCH)).ok()
        seen = encode_observed(Observed({gpu: Holder("default", "n1-occupant", "main") for gpu in uuids[:2]}))
        sick = GpuStatus(uuids[1], healthy=False, reasons=("xid 79",), sick_since=int(time.time()))
        reported = {keys.STATUS: encode_status(NodeGpuStatus(2, (sick,))), keys.OBSERVED: seen}
        patch = {"metadata": {"annotations": reported}}
        (await extender.api.call("PATCH", "/api/v1/nodes/n1", patch, content_type=MERGE_PATCH)).ok()
        await until(lambda: "deletionTimestamp" in extender.store.get(PODS, "default", "n1-occupant")["metadata"])
        await until(lambda: told_of(extender) == ["GPUPodEvicted", "GPUSick"])
        assert "gputopo_pods_on_sick_gpus 1.0" in (await extender.get("/metrics"))[1]


def told_of(extender: Running) -> list[str]:
    """Return the reasons of the events about sick GPUs."""
    reasons = [item["reason"] for item in extender.store.list(EVENTS).items]
    return sorted(reason for reason in reasons if reason in {"GPUSick", "GPUPodEvicted", "GPUPodNotEvicted"})
