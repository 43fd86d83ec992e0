"""When placeholders come and go: one for a pod, few in all, none longer than needed, and pauses between those in vain."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from extender.binding.outcome import BindTarget, Bound
from extender.cluster.caches.stand_ins import StandIn
from extender.cluster.objects.kinds import Node, OwnerReference, Pod
from extender.cluster.objects.stands_for import StandsFor
from extender.cluster.state import ClusterState
from extender.features.autoscaling.arrivals import Arrivals
from extender.features.autoscaling.feature import LOOK_SECONDS, NODE_REQUESTS, QUEUED, WAITING, Autoscaling
from extender.features.autoscaling.settings import AutoscalingSettings
from extender.kubernetes.events import EventRecorder
from extender.kubernetes.rest import Request
from extender.telemetry.metrics import Metrics
from extender.verbs.wire import ExtenderFilterResult
from tests.extender.builders import PAIRS, args, at, cluster, gpus, node, pod, running
from tests.extender.features.queue.queued import OTHER_GATE, queued
from tests.extender.rounds import at_work
from tests.extender.scattered import (
    NAMESPACE,
    NVLINK,
    counted,
    placeholder,
    refuse,
    ring,
    scattered,
)
from tests.extender.virtual_time import in_virtual_time
from topology.annotations import keys
from topology.annotations.records import PlacementRecord
from topology.placement.verdict import Reason

AFTER = 30.0
REFUSAL = ExtenderFilterResult([])
BOUND = BindTarget("default", "r1", "r1", "b"), Bound(PlacementRecord({}))
FOUR_LEFT = (0, 2, 4, 6)
EXISTS, FORBIDDEN = 409, 403


def created(seconds: float) -> str:
    """Write a moment of the tests' clock as the API server does."""
    minutes, rest = divmod(int(seconds), 60)
    return f"2026-01-01T00:{minutes:02}:{rest:02}Z"


class Api:
    """Shows pods, takes events, and keeps the names of Jobs; the watch shows their pods a moment later."""

    def __init__(self, state: ClusterState, answer: int = 201) -> None:
        self.state = state
        self.answer = answer
        self.jobs: dict[str, Pod] = {}
        """By UID of the pod that waits."""
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.reason = "Unschedulable"

    async def send(self, request: Request) -> tuple[int, bytes]:
        match request.method, request.path.split("/")[-1].split("?")[0]:
            case "POST", "events":
                self.events.append(json.loads(request.body or b""))
                return 201, b"{}"
            case "POST", "jobs":
                return self._create(json.loads(request.body or b""))
            case "DELETE", name:
                self.deleted.append(name)
                found = self.jobs.pop(name.removeprefix("gputopo-"), None)
                if found:
                    self.state.pods.deleted(found)
                return (200 if found else 404), b"{}"
            case _, name:
                return 200, self._show(request.path.split("/")[-3], name)

    def _create(self, job: dict[str, Any]) -> tuple[int, bytes]:
        if self.answer >= 300:
            return self.answer, msgspec.json.encode({"message": "no"})
        namespace, name, uid = job["metadata"]["annotations"][keys.PLACEHOLDER_FOR].split("/")
        if uid in self.jobs:
            return EXISTS, b"{}"
        count = int(job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][keys.GPU_RESOURCE])
        of = in_namespace(namespace, ring(name))
        self.jobs[uid] = placeholder(of, count, created=created(asyncio.get_running_loop().time()))
        self.created.append(uid)
        self.state.pods.changed(self.jobs[uid])
        return 201, b"{}"

    def _show(self, namespace: str, name: str) -> bytes:
        found = self.state.pods.find(namespace, name)
        assert found
        containers = [{"name": "main", "resources": {"limits": {keys.GPU_RESOURCE: str(found.gpus)}}}]
        conditions = [{"type": "PodScheduled", "status": "False", "reason": self.reason}]
        metadata = {"namespace": namespace, "name": name, "uid": found.uid}
        spec = {"containers": containers, "schedulingGates": found.pod.spec.scheduling_gates or []}
        return msgspec.json.encode({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}})

    def end(self, uid: str) -> None:
        """Let Kubernetes end a placeholder."""
        self.state.pods.deleted(self.jobs.pop(uid))

    def told(self, reason: str) -> list[str]:
        """Return what pods heard."""
        return [event["message"] for event in self.events if event["reason"] == reason]


class Life:
    """One extender's rounds, on the loop's own clock."""

    def __init__(self, state: ClusterState, api: Api | None = None, **settings: Any) -> None:
        self.state = state
        self.api = api or Api(state)
        self.recorder = EventRecorder(self.api.send)
        self.loop = asyncio.get_running_loop()
        self.autoscaling = Autoscaling(
            state=state,
            send=self.api.send,
            events=self.recorder,
            metrics=Metrics("digest", [NODE_REQUESTS]),
            clock=lambda: at(self.loop.time()),
            settings=AutoscalingSettings(enabled=True, **settings),
        )

    def refuse(self, asked: Pod, *names: str) -> None:
        """Have kube-scheduler ask in vain."""
        refuse(self.state, asked, *names, now=self.loop.time())
        self.autoscaling.after_filter(args(asked, *names), REFUSAL)

    def plan(self, *without_room: str) -> None:
        """Have the queue's plan find no room for these pods."""
        self.autoscaling.queue.is_here = lambda: True
        self.autoscaling.queue.without_room = lambda: without_room

    async def rounds(self, seconds: float) -> None:
        """Go on for so long, round by round."""
        posting = asyncio.create_task(self.recorder.run())
        async with at_work(self.autoscaling, failed=pytest.fail):
            await asyncio.sleep(seconds)
        posting.cancel()


def unreported(name: str, when: str) -> Node:
    """Build a node whose agent has not reported yet."""
    return counted(node(name, topology=None, status=None, observed=None, claims=None), created=when)


def in_namespace(namespace: str, item: Pod, *, owner: str = "") -> Pod:
    references = [OwnerReference(owner, controller=True)] if owner else None
    metadata = msgspec.structs.replace(item.metadata, namespace=namespace, owner_references=references)
    return msgspec.structs.replace(item, metadata=metadata)


def unlike(name: str, number: int, *, owner: str = "", namespace: str = "evil") -> Pod:
    """Build a pod whose request is none of the others': it gets a placeholder of its own."""
    built = pod(name, 2, wants=NVLINK | {keys.MIN_GPU_MEMORY: f"{number + 1}Mi"}, uid=name)
    return in_namespace(namespace, built, owner=owner)


def two_rings() -> ClusterState:
    """Return a machine with scattered GPUs, and two pods that need a link."""
    return cluster(*scattered("a", *FOUR_LEFT), ring("r1"), ring("r2"))


@in_virtual_time
async def test_a_pod_that_is_refused_long_enough_gets_one_placeholder() -> None:
    """Not before, and not a second one however often it is refused."""
    life = Life(two_rings())
    life.refuse(ring("r1"), "a")
    await life.rounds(AFTER - 2 * LOOK_SECONDS)
    assert life.api.created == []
    for _ in range(10):
        life.refuse(ring("r1"), "a")
        await life.rounds(LOOK_SECONDS)
    assert life.api.created == ["r1"]
    assert life.autoscaling.figures() == {"placeholders": 1}
    assert life.api.told("GPUNodeAsked") == [
        "asks autoscalers for a new node of pairs.8, by a placeholder for 5 GPUs that lives 600 s"
    ]


@in_virtual_time
async def test_two_extenders_create_one() -> None:
    """The name follows from the pod's UID, and the second one is told that it exists."""
    state = two_rings()
    one = Life(state, after="1s")
    other = Life(state, one.api, after="1s")
    for life in (one, other):
        life.refuse(ring("r1"), "a")
    await asyncio.gather(one.rounds(60), other.rounds(60))
    assert one.api.created == ["r1"]


@in_virtual_time
async def test_there_are_no_more_than_the_limit() -> None:
    """Whoever comes too late is told."""
    other = pod("r2", 2, wants=NVLINK | {keys.MIN_GPU_MEMORY: "1Gi"})
    life = Life(cluster(*scattered("a", *FOUR_LEFT), ring("r1"), other), limit=1)
    for asked in (ring("r1"), other):
        life.refuse(asked, "a")
    await life.rounds(2 * AFTER)
    assert life.api.created == ["r1"]
    assert life.api.told("GPUNodeNotAsked") == [
        "autoscalers are not asked for a new node: there are 1 placeholders already, which is the limit"
    ]


@in_virtual_time
async def test_one_tenant_that_makes_pods_anew_leaves_placeholders_to_others() -> None:
    """Ten pods that differ by a word, with other UIDs whenever a placeholder has ended: another tenant's pod gets one at once."""
    victim, slots = ring("victim"), [unlike(f"evil-{number}", number) for number in range(10)]
    life = Life(cluster(*scattered("a", *FOUR_LEFT), victim, *slots), after="1s")
    for generation in range(1, 4):
        for asked in slots:
            life.refuse(asked, "a")
        await life.rounds(60)
        assert len(life.api.jobs) == 4, "there is room for others"
        if generation == 3:
            break
        for number, asked in enumerate(slots):
            if asked.metadata.uid in life.api.jobs:
                life.api.end(asked.metadata.uid)
                life.state.pods.deleted(asked)
                slots[number] = unlike(f"evil-{number}-{generation}", number)
                life.state.pods.changed(slots[number])
    life.refuse(victim, "a")
    await life.rounds(30)
    assert "victim" in life.api.jobs
    assert life.api.told("GPUNodeNotAsked")[0].endswith(
        "its namespace has 4 of 10 placeholders already, 4 of them for its owner; the rest is kept for others"
    )


@in_virtual_time
async def test_a_pause_of_one_tenant_is_none_of_another_one_that_asks_alike() -> None:
    """A node that did not come for the one may come for the other; whose pods are many, they do not cover those of others."""
    victim, theirs = ring("victim"), in_namespace("evil", ring("evil"))
    life = Life(cluster(*scattered("a", *FOUR_LEFT), victim, theirs), after="1s")
    life.refuse(theirs, "a")
    await life.rounds(10)
    life.api.end("evil")
    for asked in (victim, theirs):
        life.refuse(asked, "a")
    await life.rounds(30)
    assert life.api.created == ["evil", "victim"]


@in_virtual_time
async def test_refusals_of_one_tenant_hide_no_others() -> None:
    """However many pods of theirs are refused more often."""
    theirs = [unlike(f"evil-{number}", number) for number in range(WAITING + 1)]
    life = Life(cluster(*scattered("a", *FOUR_LEFT), ring("victim"), *theirs), after="1s")
    life.refuse(ring("victim"), "a")
    for asked in theirs:
        life.refuse(asked, "a")
    await life.rounds(30)
    assert "victim" in life.api.jobs


@pytest.mark.parametrize(
    ("limit", "tenants", "expected"),
    [
        (10, {"a": [""] * 10}, {"a": 4}),
        (10, {"a": [f"job-{number}" for number in range(10)]}, {"a": 5}),
        (10, {"a": [""] * 10, "b": [""] * 10, "c": [""]}, {"a": 3, "b": 2, "c": 1}),
        (2, {"a": [""] * 3, "b": [""]}, {"a": 1, "b": 1}),
        (2, {"a": ["x", "y"], "b": [""]}, {"a": 1, "b": 1}),
        (3, {name: [""] for name in "abcd"}, {"a": 1, "b": 1, "c": 1}),
    ],
)
@in_virtual_time
async def test_placeholders_are_shared_between_namespaces_and_owners(
    limit: int, tenants: dict[str, list[str]], expected: dict[str, int]
) -> None:
    """Those that have fewest are served first, and something is left for those that have none."""
    owners = [(namespace, owner) for namespace, owners in tenants.items() for owner in owners]
    waiting = [
        unlike(f"{namespace}-{number}", number, owner=owner, namespace=namespace)
        for number, (namespace, owner) in enumerate(owners)
    ]
    life = Life(cluster(*scattered("a", *FOUR_LEFT), *waiting), after="1s", limit=limit)
    for asked in waiting:
        life.refuse(asked, "a")
    await life.rounds(60)
    assert Counter(uid.split("-")[0] for uid in life.api.jobs) == expected


@pytest.mark.parametrize(("pods", "placeholders"), [(2, 1), (4, 1), (5, 2), (9, 3)])
@in_virtual_time
async def test_pods_that_fit_on_one_new_node_share_a_placeholder(pods: int, placeholders: int) -> None:
    """A machine of four pairs takes four of them; a node too many would be bought in vain."""
    names = [f"r{number}" for number in range(pods)]
    life = Life(cluster(*scattered("a", *FOUR_LEFT), *map(ring, names)), after="1s")
    for name in names:
        life.refuse(ring(name), "a")
    await life.rounds(60)
    assert len(life.api.created) == placeholders


@in_virtual_time
async def test_it_goes_at_once_when_its_pod_is_bound() -> None:
    """Not only in the next round: autoscalers would buy one more for it, since the pod has taken what it counted on."""
    life = Life(two_rings(), after="1s")
    life.refuse(ring("r1"), "a")
    rounds = asyncio.create_task(life.rounds(20))
    await asyncio.sleep(10.5)
    assert "r1" in life.api.jobs
    life.state.pods.changed(running("r1", "b", *gpus("b", 0, 1), version=2))
    life.autoscaling.after_bind(*BOUND)
    await asyncio.sleep(0.1)
    assert life.api.jobs == {}
    await rounds


@in_virtual_time
async def test_rounds_end_though_a_pod_is_bound_as_they_are_told_to() -> None:
    """Else the extender waits for them for ever."""
    life = Life(two_rings(), after="1s")
    life.refuse(ring("r1"), "a")
    async with asyncio.timeout(20), at_work(life.autoscaling):
        await asyncio.sleep(10.5)
        life.autoscaling.after_bind(*BOUND)


@in_virtual_time
async def test_a_pod_in_another_namespace_that_claims_to_be_the_placeholder_hides_none() -> None:
    """Else a tenant could keep the placeholder of another one's pod, and nodes with it."""
    life = Life(two_rings(), after="1s")
    life.refuse(ring("r1"), "a")
    await life.rounds(10)
    foreign = placeholder(ring("r1"), 1, namespace="evil")
    life.state.pods.changed(
        msgspec.structs.replace(foreign, metadata=msgspec.structs.replace(foreign.metadata, name="x", uid="x"))
    )
    life.state.pods.deleted(ring("r1"))
    await life.rounds(10)
    assert life.api.jobs == {}


@in_virtual_time
async def test_it_goes_when_its_pod_is_gone() -> None:
    """By whichever extender sees it."""
    life = Life(two_rings(), after="1s")
    life.refuse(ring("r1"), "a")
    await life.rounds(10)
    life.state.pods.deleted(ring("r1"))
    await Life(life.state, life.api).rounds(2)
    assert life.api.jobs == {}


@in_virtual_time
async def test_it_goes_when_its_pod_waits_for_another_reason() -> None:
    """A closed node opens again."""
    life = Life(two_rings(), after="1s")
    life.refuse(ring("r1"), "a")
    await life.rounds(10)
    assert "r1" in life.api.jobs
    life.autoscaling.after_filter(args(ring("r1"), "a"), REFUSAL)
    life.state.memory.refusals.add("r1", frozenset({Reason.CLOSED}), 0.0)
    await life.rounds(10)
    assert life.api.jobs == {}


@in_virtual_time
async def test_a_reason_that_is_older_than_the_placeholder_takes_nothing_back() -> None:
    """Another extender has heard of newer ones."""
    life = Life(two_rings(), after="1s")
    life.autoscaling.after_filter(args(ring("r1"), "a"), REFUSAL)
    life.state.memory.refusals.add("r1", frozenset({Reason.CLOSED}), 0.0)
    life.autoscaling.after_filter(args(ring("r1"), "a"), REFUSAL)
    await asyncio.sleep(60)
    other = Life(life.state, life.api, after="1s")
    life.state.memory.refusals.forget("r1")
    other.refuse(ring("r1"), "a")
    await other.rounds(10)
    life.state.memory.refusals.add("r1", frozenset({Reason.CLOSED}), 0.0)
    await life.rounds(10)
    assert "r1" in life.api.jobs


@in_virtual_time
async def test_one_in_vain_is_followed_by_a_pause_that_doubles() -> None:
    """The pod is told, too."""
    life = Life(two_rings(), after="1s", pause="100s")
    moments = []
    for _ in range(3):
        while "r1" not in life.api.jobs:
            life.refuse(ring("r1"), "a")
            await life.rounds(LOOK_SECONDS)
        moments.append(life.loop.time())
        life.api.end("r1")
    first, second = moments[1] - moments[0], moments[2] - moments[1]
    assert first == pytest.approx(100, abs=2 * LOOK_SECONDS)
    assert second == pytest.approx(200, abs=2 * LOOK_SECONDS)
    assert "asked again in 100 s" in life.api.told("GPUNodeDidNotCome")[0]


@in_virtual_time
async def test_it_goes_when_its_node_has_come_and_is_not_followed_by_another_one() -> None:
    """The node may take minutes until its agent reports, and until then it does not count as one that refuses."""
    life = Life(two_rings(), after="1s")
    life.api.jobs["r1"] = placeholder(ring("r1"), 7)
    life.state.pods.changed(life.api.jobs["r1"])
    life.refuse(ring("r1"), "a")
    life.state.nodes.changed(unreported("fresh", "2026-01-01T00:00:09Z"))
    await life.rounds(60)
    life.refuse(ring("r1"), "a")
    await life.rounds(60)
    assert (life.api.jobs, life.api.created) == ({}, [])
    assert life.api.told("GPUNodeCame") == ["fresh is new and would do; it is offered once its GPU agent has reported"]


@pytest.mark.parametrize(
    ("asked", "since", "answers"),
    [(7, 5, ["fresh", None]), (6, 5, [None, None]), (7, 30, [None, None])],
    ids=["its node", "room for both", "a node from before"],
)
def test_a_node_answers_one_placeholder(asked: int, since: int, answers: list[str | None]) -> None:
    """It has to have come after it, and both together ask for more than it has."""
    state = two_rings()
    state.nodes.changed(unreported("fresh", created(20)))
    arrivals = Arrivals(state)
    found = []
    for name in ("r1", "r2"):
        known = state.pods.get(name)
        assert known
        stands = StandIn(StandsFor("ml", name, name), NAMESPACE, name, asked, created(since))
        found.append(arrivals.answer_to(stands, known, at()))
    assert found == answers


@in_virtual_time
async def test_nothing_is_asked_for_a_pod_whose_victims_are_leaving() -> None:
    """It has a nominated node; autoscalers pass it over, too."""
    life = Life(two_rings(), after="1s")
    nominated = pod("r1", 2, wants={keys.REQUIRED_AFFINITY: "nvlink"}, nominated="a")
    life.refuse(nominated, "a")
    await life.rounds(60)
    assert life.api.created == []


@in_virtual_time
async def test_nothing_is_asked_for_a_pod_that_kube_scheduler_has_not_given_up() -> None:
    """Autoscalers look at the condition that it writes."""
    life = Life(two_rings(), after="1s")
    life.api.reason = "SchedulerError"
    life.refuse(ring("r1"), "a")
    await life.rounds(60)
    assert life.api.created == []


@in_virtual_time
async def test_a_server_that_refuses_is_asked_again() -> None:
    """A quota, or a right that is missing."""
    state = two_rings()
    life = Life(state, Api(state, FORBIDDEN), after="1s")
    life.refuse(ring("r1"), "a")
    await life.rounds(20)
    life.api.answer = 201
    await life.rounds(20)
    assert life.api.created == ["r1"]


def bound_to(node: str, item: Pod) -> Pod:
    """Return the next version of a pod, bound."""
    metadata = msgspec.structs.replace(item.metadata, resource_version="99")
    return msgspec.structs.replace(item, metadata=metadata, spec=msgspec.structs.replace(item.spec, node_name=node))


def full_with(*waiting: Pod) -> ClusterState:
    """Return a machine without a free GPU, and these pods."""
    return cluster(*scattered("a", *range(8)), *waiting)


@in_virtual_time
async def test_a_pod_without_room_in_the_queue_gets_one_placeholder() -> None:
    """After the same time as a pod that filter refuses; kube-scheduler has said nothing of it but that it has a gate."""
    life = Life(full_with(queued("q", 4)))
    life.api.reason = "SchedulingGated"
    life.plan("q")
    await life.rounds(AFTER - 2 * LOOK_SECONDS)
    assert life.api.created == []
    await life.rounds(AFTER)
    assert life.api.created == ["q"]


@in_virtual_time
async def test_a_pod_behind_another_gate_too_gets_none() -> None:
    """It could not run on the new node, which would go again."""
    life = Life(full_with(queued("q", 4, gates=(keys.PLAN_GATE, OTHER_GATE))), after="1s")
    life.plan("q")
    await life.rounds(30)
    assert life.api.created == []


@in_virtual_time
async def test_pods_that_no_node_helps_do_not_stop_those_behind_them() -> None:
    """They are looked at again after the others, and wait since when they did."""
    hopeless = [f"h{number}" for number in range(2 * QUEUED)]
    pods = (queued(name, 4, wants={keys.GPU_MODEL: "*B300*"}) for name in hopeless)
    life = Life(full_with(*pods, queued("q", 4)), after="1s")
    life.plan(*hopeless, "q")
    await life.rounds(4 * LOOK_SECONDS)
    assert life.api.created == ["q"]


@in_virtual_time
async def test_a_pod_with_a_placeholder_keeps_its_turn() -> None:
    """No node helps it while another is empty; should that change, a pod like it asks for none: it sees that one is asked for."""
    hopeless = [f"h{number}" for number in range(2 * QUEUED - 3)]
    pods = (queued(name, 4, wants={keys.GPU_MODEL: "*B300*"}) for name in hopeless)
    life = Life(full_with(queued("q", 4), queued("r", 4), *pods), after="1s")
    life.plan("q", "r", *hopeless)
    await life.rounds(LOOK_SECONDS + 1)
    life.state.nodes.changed(counted(node("b", PAIRS)))
    await life.rounds(2 * LOOK_SECONDS)
    life.state.pods.changed(running("one-more", "b", *gpus("b", *range(8), machine_name=PAIRS)))
    await life.rounds(4 * LOOK_SECONDS)
    assert life.api.created == ["q"]


@in_virtual_time
async def test_a_pause_lasts_while_the_pod_is_in_the_queue() -> None:
    """Also where another replica plans for a moment."""
    life = Life(full_with(queued("q", 4)), after="1s", pause="100s")
    life.plan("q")
    await life.rounds(2 * LOOK_SECONDS)
    life.api.end("q")
    await life.rounds(LOOK_SECONDS)
    assert len(life.api.told("GPUNodeDidNotCome")) == 1
    life.autoscaling.queue.is_here = lambda: False
    await life.rounds(LOOK_SECONDS + 1)
    life.plan("q")
    await life.rounds(60)
    assert life.api.created == ["q"]
    await life.rounds(60)
    assert life.api.created == ["q", "q"]


@in_virtual_time
async def test_a_pause_lasts_though_many_other_pods_are_looked_at() -> None:
    """Its pod has come to the back of the line meanwhile."""
    hopeless = [f"h{number}" for number in range(QUEUED)]
    pods = (queued(name, 4, wants={keys.GPU_MODEL: "*B300*"}) for name in hopeless)
    life = Life(full_with(queued("q", 4), *pods), after="1s", pause="100s")
    life.plan("q")
    await life.rounds(2 * LOOK_SECONDS)
    life.api.end("q")
    life.plan(*hopeless)
    await life.rounds(2 * LOOK_SECONDS)
    life.plan(*hopeless, "q")
    await life.rounds(60)
    assert life.api.created == ["q"]
    await life.rounds(60)
    assert life.api.created == ["q", "q"]


@in_virtual_time
async def test_a_lapse_of_the_lease_begins_no_wait_again() -> None:
    """The pod has been without room all the time."""
    life = Life(full_with(queued("q", 4)), after="30s")
    life.plan("q")
    await life.rounds(20)
    life.autoscaling.queue.is_here = lambda: False
    await life.rounds(LOOK_SECONDS + 1)
    assert life.api.created == []
    life.plan("q")
    await life.rounds(2 * LOOK_SECONDS)
    assert life.api.created == ["q"]


@in_virtual_time
async def test_only_the_replica_that_plans_asks_for_pods_in_the_queue() -> None:
    """Another one may have planned them before, and does not know what has become of them."""
    life = Life(full_with(queued("q", 4)), after="1s")
    life.plan("q")
    life.autoscaling.queue.is_here = lambda: False
    await life.rounds(30)
    assert life.api.created == []


@in_virtual_time
async def test_only_the_replica_that_plans_tells_that_no_node_came() -> None:
    """The one before it knows the pod, too, but not what has become of it."""
    state = full_with(queued("q", 4))
    before = Life(state, after="1s")
    before.plan("q")
    await before.rounds(2 * LOOK_SECONDS)
    before.autoscaling.queue.is_here = lambda: False
    now = Life(state, before.api, after="1s")
    now.plan("q")
    rounds = asyncio.gather(before.rounds(20), now.rounds(20))
    await asyncio.sleep(10)
    before.api.end("q")
    await rounds
    assert len(before.api.told("GPUNodeDidNotCome")) == 1


@in_virtual_time
async def test_a_placeholder_that_kube_scheduler_has_bound_is_deleted_and_pauses() -> None:
    """Where no extender is asked it does so as soon as the new node is there, whose GPUs are the pod's."""
    life = Life(full_with(queued("q", 4)), after="1s")
    life.plan("q")
    await life.rounds(2 * LOOK_SECONDS)
    life.state.pods.changed(bound_to("a", life.api.jobs["q"]))
    await life.rounds(2 * LOOK_SECONDS)
    assert life.api.deleted == ["gputopo-q"]
    await life.rounds(10 * LOOK_SECONDS)
    assert life.api.created == ["q"], "the next one comes after a pause"
    assert life.api.told("GPUNodeDidNotCome") == []
