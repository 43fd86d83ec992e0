"""The search for victims leaves the processor to others again and again, and answers in time with the best that it has found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from extender.cluster.objects.gpu_pods import read_gpu_pod
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.features.configuration import load
from extender.kit.clock import Clock, Instant
from extender.kubernetes.kube import KubeApi
from extender.service import Extender
from extender.verbs.preempt import PAUSE_SECONDS, Preemption, preempt
from extender.verbs.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from tests.extender.builders import PAIRS, at, claim, cluster, finish, gpus, node, pod
from topology.annotations import keys
from topology.annotations.records import Claim

RING = {keys.REQUIRED_AFFINITY: "nvlink"}
VIP = pod("vip", 2, wants=RING, priority=1000)
FOREVER = 1e9
"""Seconds."""


def guests(name: str, *priorities: int, version: int = 1) -> list[Pod]:
    """Build one pod for each GPU of a node of pairs."""
    placed = gpus(name, *range(len(priorities)), machine_name=PAIRS)
    return [
        pod(f"{name}-{at}", on=name, placed=(gpu,), phase="Running", priority=priority, version=version)
        for at, (gpu, priority) in enumerate(zip(placed, priorities, strict=True))
    ]


def machine(name: str, *there: Pod, version: int = 1) -> Node:
    """Build a node of pairs with the claims of these pods."""
    return node(name, PAIRS, claims=claims_of(there), version=version)


def claims_of(there: Sequence[Pod]) -> tuple[Claim, ...]:
    """Return the claims that their records speak of."""
    guests_of_node = filter(None, map(read_gpu_pod, there))
    return tuple(claim(gpu, guest.uid) for guest in guests_of_node for gpu in guest.placed or ())


def hall(**priorities: tuple[int, ...]) -> ClusterState:
    """Return a cluster of such nodes, all GPUs taken by pods of these priorities."""
    there = {name: guests(name, *each) for name, each in priorities.items()}
    return cluster(
        *(machine(name, *pods) for name, pods in there.items()), *(pod for pods in there.values() for pod in pods)
    )


def offers(*names: str, violations: int = 0) -> dict[str, MetaVictims]:
    """Offer two pods of each node that are not joined."""
    return {name: MetaVictims([MetaPod(f"{name}-0"), MetaPod(f"{name}-2")], violations) for name in names}


TICK_SECONDS = PAUSE_SECONDS / 4


class Ticking:
    """A clock that is a quarter of the time between pauses on whenever it is read."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self) -> Instant:
        self.read += 1
        return at(self.read * TICK_SECONDS)


def decide(state: ClusterState, offered: dict[str, MetaVictims], clock: Clock, budget_seconds: float) -> Preemption:
    """Take the whole answer for a pod that wants a pair."""
    return finish(preempt(state, ExtenderPreemptionArgs(VIP, None, offered), clock, budget_seconds=budget_seconds))


def test_the_search_pauses_again_and_again() -> None:
    """Not after each node, but whenever it is time, also while one node is looked at."""
    state, clock = hall(**{f"n{number}": (0,) * 8 for number in range(20)}), Ticking()
    steps = preempt(state, ExtenderPreemptionArgs(VIP, None, offers(*state.views)), clock, budget_seconds=FOREVER)
    reads = [0, *(clock.read for _ in steps)]
    assert len(reads) > 100
    assert max(later - before for before, later in pairwise(reads)) <= 8, "half of these are about other things"


def test_all_nodes_are_answered_that_the_time_allows() -> None:
    """However often the search made way for others."""
    state = hall(**{f"n{number}": (0,) * 8 for number in range(20)})
    found = decide(state, offers(*state.views), Ticking(), FOREVER)
    assert (set(found.victims), found.unfinished) == (set(state.views), 0)


def test_when_the_time_is_up_the_best_so_far_is_the_answer() -> None:
    """The nodes with the least important pods come first, whatever the order in which they were offered."""
    state = hall(**{f"n{number:02}": (number,) * 8 for number in range(20)})
    offered, whole = offers(*sorted(state.views, reverse=True)), Ticking()
    assert len(decide(state, offered, whole, FOREVER).victims) == 20
    found = decide(state, offered, Ticking(), whole.read / 2 * TICK_SECONDS)
    assert 0 < len(found.victims) < 20
    assert sorted(found.victims) == [f"n{number:02}" for number in range(len(found.victims))]
    assert found.unfinished == 20 - len(found.victims)


def test_nodes_where_no_disruption_budget_is_violated_come_first() -> None:
    """kube-scheduler compares them by that before all else."""
    state = hall(bad=(0,) * 8, good=(9,) * 8)
    offered = offers("bad", violations=1) | offers("good")
    whole = Ticking()
    decide(state, offers("good"), whole, FOREVER)
    found = decide(state, offered, Ticking(), 1.5 * whole.read * TICK_SECONDS)
    assert (set(found.victims), found.unfinished) == ({"good"}, 1)


def test_a_node_that_takes_long_lets_another_go_before_it() -> None:
    """One that promises much, and where many sets have to be looked at before one is found that is joined."""
    state = hall(slow=(0, 9, 0, 9, 0, 9, 0, 9), quick=(1,) * 8)
    quick = {"quick": MetaVictims([MetaPod("quick-0"), MetaPod("quick-1")])}
    alone = Ticking()
    assert decide(state, offers("slow"), alone, FOREVER).victims
    found = decide(state, offers("slow") | quick, Ticking(), 0.9 * alone.read * TICK_SECONDS)
    assert (set(found.victims), found.unfinished) == ({"quick"}, 1)
    assert decide(state, offers("slow") | quick, Ticking(), FOREVER).victims.keys() == {"slow", "quick"}


def test_without_time_nobody_is_evicted() -> None:
    """The pod will be tried again; whoever was offered first would perhaps go in vain."""
    state = hall(n1=(0,) * 8)
    assert decide(state, offers("n1"), Ticking(), 0.0) == Preemption({}, 1)


def halfway(state: ClusterState, *news: Pod | Node) -> dict[str, list[str]]:
    """Return whom the search names per node if these are heard of in its first pause."""
    args = ExtenderPreemptionArgs(VIP, None, offers(*state.views))
    steps = preempt(state, args, Ticking(), budget_seconds=FOREVER)
    next(steps)
    for item in news:
        (state.nodes if isinstance(item, Node) else state.pods).changed(item)  # type: ignore[arg-type]
    return {name: victims.uids for name, victims in finish(steps).victims.items()}


def test_a_victim_that_has_ended_meanwhile_is_not_named() -> None:
    """There may be room on its node without any eviction; the pod is tried again when its end is heard of."""
    state = hall(n1=(0,) * 8, n2=(0,) * 8)
    victims = halfway(hall(n1=(0,) * 8, n2=(0,) * 8))["n1"]
    first = next(guest for guest in guests("n1", *(0,) * 8, version=2) if guest.metadata.uid == victims[0])
    ended = msgspec.structs.replace(first, status=msgspec.structs.replace(first.status, phase="Failed"))
    assert halfway(state, ended).keys() == {"n2"}


def test_a_pod_that_came_meanwhile_is_nobodys_victim() -> None:
    """kube-scheduler does not see it on the node yet, and a victim that it does not know fails the whole call."""
    whole = guests("n1", 5, 5, 5, 5, 0, 0, 5, 5)
    newcomer, there = whole[5], [*whole[:5], *whole[6:]]
    state = cluster(machine("n1", *there), *there)
    assert "n1-4" in halfway(state)["n1"], "beside it a GPU is free"
    assert halfway(state, newcomer) == {}


def test_a_node_that_takes_no_pods_any_more_is_left_out() -> None:
    """Its agent has found its ledger broken in a pause."""
    state = hall(n1=(0,) * 8, n2=(0,) * 8)
    assert halfway(state, node("n1", PAIRS, ledger='{"v":9}', version=2)).keys() == {"n2"}


def test_a_node_that_changed_in_nothing_that_matters_is_named() -> None:
    """A report of its agent is written every few minutes."""
    state = hall(n1=(0,) * 8, n2=(0,) * 8)
    assert halfway(state, machine("n1", *guests("n1", *(0,) * 8), version=2)).keys() == {"n1", "n2"}


@pytest.mark.slow
def test_names_are_looked_up_and_not_searched_for() -> None:
    """As many victims as a body has place for are one table; compared name by name they would take a minute."""
    state = hall(n1=(0,) * 8)
    crowd = MetaVictims([MetaPod(f"web-{number}") for number in range(80_000)] + [MetaPod("n1-0"), MetaPod("n1-1")])
    assert len(decide(state, {"n1": crowd}, at, FOREVER).victims["n1"].uids) == 80_002


@pytest.mark.slow
async def test_others_are_served_while_victims_are_sought(tmp_path: Path) -> None:
    """Many of their turns fit into one call, and none of them waits for a good part of it."""
    extender = Extender(load(None, {}, {}), KubeApi.from_kubeconfig(tmp_path / "nobody"))
    there = {name: guests(name, *(0,) * 8) for name in (f"n{number}" for number in range(100))}
    extender.state.nodes.replaced([machine(name, *pods) for name, pods in there.items()])
    extender.state.pods.replaced([each for pods in there.values() for each in pods])
    offered = {name: MetaVictims([MetaPod(each.metadata.uid) for each in pods]) for name, pods in there.items()}
    call = asyncio.create_task(extender.preempt(ExtenderPreemptionArgs(VIP, None, offered)))
    turns = [time.perf_counter()]
    while not call.done():
        await asyncio.sleep(0)
        turns.append(time.perf_counter())
    longest = max(later - before for before, later in pairwise(turns))
    assert len(turns) > 10
    assert longest < (turns[-1] - turns[0]) / 2
    assert (await call).victims
