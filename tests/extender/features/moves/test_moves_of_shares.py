"""Pods with shares are evicted only where a GPU is free without them, and come back to exactly what was reserved."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from extender.kubernetes.evictor import EVICTED
from tests.extender.features.moves.sharing_agents import SharingAgents, gib
from tests.extender.features.moves.site import MoveSite
from tests.extender.features.moves.test_moves import evicted, until_begun


async def with_shares() -> MoveSite:
    """Return two nodes with six GPUs that are full. A share on each of two GPUs moves for a pod that wants both."""
    site = MoveSite(2, Random(1), agents=SharingAgents(Random(1), chance=1.0))
    for device in (0, 1):
        site.replica_set(f"moves-{device}", gib(20), "n0", device=device)
    site.single("stays", 4, on="n0")
    site.replica_set("there", gib(30), "n1", device=0, annotations={})
    site.single("other", 5, on="n1")
    for _ in range(3):
        await site.tick()  # the agents report
    site.single("waits", 2)
    return site


async def test_shares_move_onto_a_gpu_that_is_shared_already_and_a_pod_gets_theirs() -> None:
    """Exactly what was reserved of it."""
    site = await with_shares()
    await site.settle()
    assert site.node_of("waits") == "n0"
    shared = site.replica.state.views["n1"].devices[0]
    assert [site.places_of(f"uid-moves-{device}") for device in (0, 1)] == [[("n1", {shared: 20})]] * 2
    assert (site.reservations(), site.outcomes["move_plans served"]) == ({}, 1)


async def test_the_second_share_moves_before_the_agent_calls_the_gpu_of_the_first_whole() -> None:
    """Its kubelet knows the GPU in GiB for a while, and the plan waits for that."""
    site = await with_shares()
    await until_begun(site)
    assert site.agents
    site.agents.chance = 0.0
    for _ in range(8):
        await site.tick()
    assert (len(site.evicted), site.node_of("waits"), len(site.moves.plans)) == (2, None, 1)
    site.agents.chance = 1.0
    await site.settle()
    assert (site.node_of("waits"), site.outcomes["move_plans begun"]) == ("n0", 1)


async def test_a_share_that_comes_to_the_gpu_ends_the_plan() -> None:
    """Bound around the reservations: the GPU would not be free without the pods of the plan."""
    site = await with_shares()
    await until_begun(site)
    plan, holds = site.moves.plans[0], site.replica.state.holds
    kept = {key: hold for key in plan.uids if (hold := holds.firm_of(key, site.seconds))}
    for key in kept:
        holds.release(key)  # of another replica, which knows nothing of them
    site.replica_set("intruder", gib(1), "n0", device=1)
    for key, hold in kept.items():
        holds.put(key, hold)
    await site.moves.round()
    assert (evicted(site), site.outcomes["move_plans changed"]) == ([], 1)


def for_a_larger_share() -> MoveSite:
    """Return a node where a pod waits for 60 GiB. One GPU has 58 left, and the other one has room for the pod that moves."""
    site = MoveSite(1, Random(1), agents=SharingAgents(Random(1), chance=1.0))
    site.replica_set("moves", gib(20), "n0", device=0)
    site.replica_set("there", gib(30), "n0", device=1, annotations={})
    site.single("stays", 4, on="n0")
    site.single("waits", gib(60))
    return site


async def test_a_plan_ends_once_less_of_the_gpu_is_held_for_the_pod_that_waits() -> None:
    """The share that it waits for is larger."""
    site = for_a_larger_share()
    await until_begun(site)
    holds, uid = site.replica.state.holds, site.uid_of("waits")
    hold = holds.firm_of(uid, site.seconds)
    assert hold and hold.shares == ((0, 60, ""),)
    holds.put(uid, replace(hold, shares=((0, 50, ""),)))
    await site.moves.round()
    assert (evicted(site), site.outcomes["move_plans changed"]) == ([], 1)


async def test_a_pod_that_wants_a_larger_share_gets_room() -> None:
    """Exactly the pod in the way moves."""
    site = for_a_larger_share()
    await site.settle()
    assert (site.node_of("waits"), evicted(site)) == ("n0", ["moves"])
    (moved,) = (event.note for event in site.recorder.events if event.reason == EVICTED)
    assert moved.endswith("20 GiB of GPU memory of n0 are reserved for the next pod of its owner")
