"""When placeholders come and go: one for a pod, few in all, none longer than needed, and pauses between those in vain."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from extender.cluster.caches.stand_ins import StandIn
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.stands_for import StandsFor
from extender.features.autoscaling.arrivals import Arrivals
from extender.features.autoscaling.feature import LOOK_SECONDS, WAITING
from tests.extender.builders import args, at, cluster, gpus, pod, running
from tests.extender.features.autoscaling.life import (
    AFTER,
    BOUND,
    FORBIDDEN,
    FOUR_LEFT,
    REFUSAL,
    Api,
    Life,
    created,
    in_namespace,
    two_rings,
    unreported,
)
from tests.extender.rounds import at_work
from tests.extender.scattered import NAMESPACE, NVLINK, placeholder, ring, scattered
from tests.extender.virtual_time import in_virtual_time
from topology.annotations import keys
from topology.placement.verdict import Reason


def unlike(name: str, number: int, *, owner: str = "", namespace: str = "evil") -> Pod:
    """Build a pod whose request is none of the others': it gets a placeholder of its own."""
    built = pod(name, 2, wants=NVLINK | {keys.MIN_GPU_MEMORY: f"{number + 1}Mi"}, uid=name)
    return in_namespace(namespace, built, owner=owner)


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


@pytest.mark.slow
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


@pytest.mark.slow
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
