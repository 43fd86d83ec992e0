"""Ledgers that somebody else has touched, and pods that carry each other's GPUs: C15, C16."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from benchmarks.processes.client import Json
from benchmarks.simulated.fleet import SimulatedNode, fleet
from extender.kubernetes import events
from tests.cluster.gpu_cluster import wants
from tests.extender.polling import eventually
from tests.process.world import World, pods
from tests.world.invariants import Owned, claims
from topology.annotations import keys
from topology.annotations.records import Ledger, PlacementRecord, decode_ledger, encode_ledger, encode_placement

SMALL = "rtx-3090-2"


def truncated(ledger: str) -> str:
    return ledger[: len(ledger) // 2]


def hand_edited(ledger: str) -> str:
    """Return the ledger without its claims, as somebody may write who wants the GPUs."""
    found = decode_ledger(ledger)
    return encode_ledger(Ledger(found.generation, (), found.node_uid))


DAMAGE: tuple[Callable[[str], str | None], ...] = (lambda _: None, truncated, hand_edited)


async def test_c15_damaged_ledgers_are_closed_and_rebuilt(world: World, figure: Callable[[str], None]) -> None:
    """One in ten of 500, wiped, truncated or edited by hand, under several replicas: no claim is lost, no GPU given twice."""
    names = [f"{SMALL}-{number}" for number in range(500)]
    await world.join(*fleet({SMALL: 500}))
    replicas, clock = await world.start(2), asyncio.get_running_loop()
    made = await world.submit(*pods(100))

    async def is_bound(pod: Json, name: str) -> bool:
        return await replicas[0].bind(pod, name) == ""

    # A hundred at once can run out of their time; who asks again is told that the pod is bound.
    await asyncio.gather(*(eventually(partial(is_bound, *each), 60) for each in zip(made, names[:100], strict=True)))
    await eventually(lambda: world.are_running(100), 60)
    before, began = await claimed(world), clock.time()
    for number, name in enumerate(names[:50]):
        await world.spoil(name, DAMAGE[number % 3](encode_ledger(await world.ledger(name))))
    late = await world.submit(*(wants(f"late-{number}", 1) for number in range(50)))
    answers = await asyncio.gather(*(replicas[1].bind(pod, name) for pod, name in zip(late, names[:50], strict=True)))

    async def is_rebuilt() -> bool:
        return before <= await claimed(world)

    await eventually(is_rebuilt, 30)
    refused = sum(answer != "" for answer in answers)
    figure(
        f"C15: 50 damaged ledgers of 500 rebuilt within {clock.time() - began:.1f} s; {refused} binds refused meanwhile"
    )


async def claimed(world: World) -> set[Owned]:
    """Return what the ledgers say, as far as they can be read."""
    nodes, _ = await world.backend.objects()
    return set(claims(nodes))


async def test_c16_gpu_that_two_pods_carry_is_nobody_elses(
    world: World, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """A forged record is told of within seconds, by metric and event, and the GPU is not chosen before both pods are gone."""
    node = SimulatedNode("n1", SMALL)
    await world.join(node)
    (replica,), clock = await world.start(), asyncio.get_running_loop()
    (honest,) = await world.submit(wants("honest", 1))
    assert await replica.bind(honest, "n1") == ""
    (claim,) = (await world.ledger("n1")).claims
    record = encode_placement(PlacementRecord({"main": (claim.gpu,)}))
    forged = wants("forged", 1, nodeName="n1", schedulerName="nobody")
    forged["metadata"]["annotations"] = {keys.PLACEMENT: record}
    began = clock.time()
    world.spoiled.add("n1")
    await world.submit(forged)
    await eventually(lambda: replica.counts("gpus_in_conflict", 1), 30)
    await eventually(lambda: world.was_told("honest", events.CONFLICT), 30)
    seconds = clock.time() - began
    figure(f"C16: a GPU with two pods was told of within {seconds:.1f} s")
    assert seconds <= goal(5)
    (third,) = await world.submit(wants("third", 2))
    assert await replica.bind(third, "n1")
    await world.delete("forged")
    await world.delete("honest")
