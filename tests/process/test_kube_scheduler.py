"""The real kube-scheduler over several replicas, and killed under load (W11 is in `tests.cluster.test_first_light`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from benchmarks.simulated.fleet import fleet
from tests.cluster.component import Component
from tests.cluster.extender_process import scheduler_configuration
from tests.extender.polling import eventually
from tests.process.backends import Kube
from tests.process.replica import Replica
from tests.process.tiers import on_the_real_one
from tests.process.world import World, pods

FLEET = fleet({"hgx-h100": 10, "dgx-1v": 5})
PODS = 60


async def start_scheduler(world: World, replica: Replica) -> Component:
    """Start one that asks this replica, and does not care who else leads."""
    assert isinstance(world.backend, Kube)
    configuration = scheduler_configuration({"http://127.0.0.1:8888": replica.process.url})
    configuration["leaderElection"] = {"leaderElect": False}
    return await asyncio.to_thread(world.backend.plane.start_scheduler, configuration, world.backend.extender)


@on_the_real_one
async def test_two_schedulers_that_both_believe_to_lead_bind_each_pod_once(
    world: World, figure: Callable[[str], None]
) -> None:
    """Each asks a replica of its own about the same pods: what one binds the other is refused, and no GPU is given twice."""
    await world.join(*FLEET)
    replicas, clock = await world.start(2), asyncio.get_running_loop()
    for replica in replicas:
        await start_scheduler(world, replica)
    began, made = clock.time(), await world.submit(*pods(PODS))
    await eventually(lambda: world.are_bound(made), 90)
    answers = Counter(call["verdict"] for replica in replicas for call in replica.process.said("bind"))
    assert all(replica.promises() for replica in replicas)
    figure(
        f"two kube-schedulers, two replicas: {PODS} pods bound in {clock.time() - began:.1f} s; binds: {dict(answers)}"
    )


@on_the_real_one
async def test_scheduler_that_is_killed_under_load_is_followed_by_one_that_binds_the_rest(
    world: World, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Whatever it had asked and not heard: holds expire, claims are reused, every pod is bound."""
    await world.join(*FLEET)
    (replica,) = await world.start(settings={"scheduling": {"hold": "3.5s"}})
    scheduler, kills = await start_scheduler(world, replica), rounds(2, 20)
    made = await world.submit(*pods(PODS))
    for kill in range(1, kills + 1):
        await eventually(lambda: bound(world, PODS * kill // (kills + 2)), 60)  # noqa: B023 - awaited here
        await asyncio.to_thread(scheduler.kill)
        scheduler.start()
        await asyncio.to_thread(scheduler.wait_ready)
    await eventually(lambda: world.are_bound(made), 90)
    figure(f"kube-scheduler killed {kills} times under load: {PODS} of {PODS} pods bound")


async def bound(world: World, number: int) -> bool:
    _, there = await world.backend.objects()
    return sum("nodeName" in pod["spec"] for pod in there) >= number
