"""C3: kill -9 before and after every API write of bind, release and rebuild; everything is recovered from the API alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from benchmarks.processes.client import Json
from benchmarks.simulated.fleet import SimulatedNode
from benchmarks.simulated.pod_life import EXIT_CODE
from tests.cluster.gpu_cluster import wants
from tests.extender.polling import eventually
from tests.process import faults
from tests.process.calls import Call, Kind
from tests.process.proxy import Fault
from tests.process.replica import Replica, revoking_after
from tests.process.world import World
from tests.world.http_faults import RequestFault

Act = Callable[[], Awaitable[object]]
Side = Callable[[Callable[[], Awaitable[None]]], Fault]
PATIENT = revoking_after("60s")
READY_WITHIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """What makes the protocol write, once its preparations have brought an unbound pod to where it begins."""

    prepare: Callable[[World, Replica, Json], Awaitable[Act]]
    """The pod is to go to the node of its own name."""
    writes: int
    """How many there are at least; what is found to be more is tried, too."""
    settings: Mapping[str, Any] = field(default_factory=lambda: PATIENT)


async def a_bind(_: World, replica: Replica, pod: Json) -> Act:
    """Claim, Binding."""
    return lambda: replica.bind(pod, name_of(pod))


async def a_release(world: World, replica: Replica, pod: Json) -> Act:
    """Drop the claim of a pod that has ended."""
    assert await replica.bind(pod, name_of(pod)) == ""

    async def end() -> None:
        await world.annotate_pod(name_of(pod), {EXIT_CODE: "0"})
        await released_or_dead(world, replica, pod)

    return end


async def an_orphan(world: World, replica: Replica, pod: Json) -> Act:
    """Fence, then drop the claim, of a pod whose Binding was lost and that nobody binds again."""
    await bind_in_vain(replica, pod)
    return lambda: released_or_dead(world, replica, pod)


async def a_refusal(_: World, replica: Replica, pod: Json) -> Act:
    """Claim, Binding, fence, drop the claim: somebody else's policy does not want the pod there."""

    async def refuse() -> None:
        with replica.proxy.meet(Kind.BINDING, faults.of(RequestFault.FORBIDDEN)):
            await replica.bind(pod, name_of(pod))

    return refuse


async def a_second_choice(world: World, replica: Replica, pod: Json) -> Act:
    """Fence, claim, Binding, of a pod whose claimed GPU has fallen ill since."""
    node = name_of(pod)
    await bind_in_vain(replica, pod)
    (claim,) = (await world.ledger(node)).claims
    await world.agent_looks(node, lambda uuid: uuid == claim.gpu)
    await world.caught_up(replica)
    return lambda: replica.bind(pod, node)


async def a_rebuild(world: World, replica: Replica, pod: Json) -> Act:
    """Fence a pod that waits, then write a new ledger where a stranger has removed it."""
    node = name_of(pod)
    assert await replica.bind(pod, node) == ""
    await eventually(lambda: world.is_running(node), 30)
    await world.submit(wants(f"{node}.waiting", 1))

    async def is_rebuilt() -> bool:
        return not replica.is_running or len((await world.ledger(node)).claims) == 1

    async def wipe() -> None:
        await world.spoil(node, None)
        await eventually(is_rebuilt, 30)

    return wipe


BRIEF = revoking_after("2s")
SCENARIOS = {
    "bind": Scenario(a_bind, 2),
    "release": Scenario(a_release, 1),
    "fence": Scenario(an_orphan, 2, BRIEF),
    "refusal": Scenario(a_refusal, 3),
    "second choice": Scenario(a_second_choice, 3),
    "rebuild": Scenario(a_rebuild, 2),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_c3_kill_9_around_every_write_loses_nothing(
    world: World, name: str, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """Before and after each one, however many there are; the pod is bound in the end, and what was claimed is claimed for it."""
    scenario = SCENARIOS[name]
    (replica,) = await world.start(settings=scenario.settings)
    points = 0
    for side in (faults.before, faults.after):
        for number in count(1):
            if not await dies(world, replica, scenario, side, number):
                assert number > scenario.writes
                break
            points += 1
    figure(f"C3 {name}: killed at {points} points, ready again within {max(replica.starts):.1f} s")
    assert max(replica.starts) <= goal(READY_WITHIN_SECONDS)


async def dies(world: World, replica: Replica, scenario: Scenario, side: Side, number: int) -> bool:
    """Play the scenario on a node of its own, with death at its write of this number; whether there was one."""
    name = f"{side.__name__}-{number}"
    await world.join(SimulatedNode(name, "rtx-3090-2"))
    (pod,) = await world.submit(wants(name, 1))
    await world.caught_up(replica)
    act = await scenario.prepare(world, replica, pod)
    writes = count(1)

    def is_the_one(call: Call) -> bool:
        return call.is_write and next(writes) == number

    rule = replica.proxy.meet(is_the_one, side(replica.kill), times=1)
    await act()
    await world.settle()
    return bool(rule.met)


async def bind_in_vain(replica: Replica, pod: Json) -> None:
    with replica.proxy.meet(Kind.BINDING, faults.lost):
        assert await replica.bind(pod, name_of(pod))


async def released_or_dead(world: World, replica: Replica, pod: Json) -> None:
    async def is_over() -> bool:
        return not replica.is_running or not (await world.ledger(name_of(pod))).claims

    await eventually(is_over)


def name_of(pod: Json) -> str:
    return str(pod["metadata"]["name"])
