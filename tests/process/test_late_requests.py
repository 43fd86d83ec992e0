"""C6, C7, C8: a replica frozen in mid-bind, a Binding that arrives late, and replies that are lost after the write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count

import pytest

from benchmarks.processes.client import Json
from benchmarks.simulated.fleet import SimulatedNode
from benchmarks.simulated.pod_life import EXIT_CODE
from tests.cluster.gpu_cluster import wants
from tests.extender.polling import eventually
from tests.process import faults
from tests.process.calls import Call, Kind
from tests.process.proxy import Forward, Reply
from tests.process.replica import Replica, revoking_after
from tests.process.world import World

AT_ONCE = 10
NEVER, SOON = revoking_after("1h"), revoking_after("300ms")
_numbers = count()


async def test_c6_replica_frozen_after_its_claim_binds_nothing_that_was_revoked(
    world: World, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Another one revokes the claim and gives the GPUs away; what the frozen one sends when it goes on is refused."""
    slow, quick = await two_replicas(world, "30s")
    for _ in range(rounds(1, 50)):
        losers, winners = await rivals(world)
        claims, thawed = asyncio.Semaphore(0), asyncio.Event()

        async def hold_the_reply(_: Call, forward: Forward) -> Reply:
            reply = await forward()
            claims.release()  # noqa: B023 - every round is over before the next
            await thawed.wait()  # noqa: B023
            return reply

        with slow.proxy.meet(Kind.LEDGER, hold_the_reply, times=AT_ONCE):
            binds = [asyncio.create_task(slow.bind(pod, home(pod))) for pod in losers]
            for _ in losers:
                await claims.acquire()
        await slow.freeze()
        thawed.set()
        await give_away(world, quick, winners)
        slow.process.thaw()
        assert "" not in await asyncio.gather(*binds)
        await end(world, winners)
    late = slow.proxy.statuses(Kind.BINDING)
    assert set(late) == {409} and len(late) >= rounds(1, 50) * AT_ONCE
    figure(f"C6: {len(late)} of {len(late)} Bindings of a replica that was frozen too long were refused")


async def test_c7_binding_that_was_held_in_the_network_until_its_claim_was_revoked_is_refused(
    world: World, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Its sender has given up, the GPUs are somebody else's, and it commits nothing."""
    slow, quick = await two_replicas(world, "2s")
    refused = 0
    for _ in range(rounds(1, 50)):
        losers, winners = await rivals(world)
        held = [faults.Held() for _ in losers]
        with ExitStack() as rules:
            for one in held:
                rules.enter_context(slow.proxy.meet(Kind.BINDING, one, times=1))
            assert "" not in await asyncio.gather(*(slow.bind(pod, home(pod)) for pod in losers))
        await give_away(world, quick, winners)
        sent = [one for one in held if one.arrived.is_set()]  # on a busy machine a bind may end before its Binding
        assert {(await one.release()).status for one in sent} == {409}
        refused += len(sent)
        await end(world, winners)
    figure(f"C7: {refused} of {refused} Bindings that arrived after their claim was revoked were refused")


async def two_replicas(world: World, deadline: str) -> tuple[Replica, Replica]:
    """Return one that never revokes and has so much time for a bind, and one that revokes soon."""
    slow, quick = (
        await world.add({**NEVER, "scheduling": {"bindDeadline": deadline, "hold": "60s"}}),
        await world.add(SOON),
    )
    await asyncio.gather(slow.run(), quick.run())
    return slow, quick


async def small_nodes(world: World) -> list[str]:
    """Let nodes of two GPUs join, and return their names."""
    names = [f"n-{next(_numbers)}" for _ in range(AT_ONCE)]
    await world.join(*(SimulatedNode(name, "rtx-3090-2") for name in names))
    return names


async def rivals(world: World) -> tuple[list[Json], list[Json]]:
    """Let small nodes join, and return for each of them two pods that want all of it."""
    names = await small_nodes(world)
    losers = await world.submit(*(wants(f"{name}.loser", 2) for name in names))
    winners = await world.submit(*(wants(f"{name}.winner", 2) for name in names))
    await world.caught_up()
    return losers, winners


async def give_away(world: World, quick: Replica, winners: list[Json]) -> None:
    """Wait until the losers' claims are revoked, and bind the winners."""
    for pod in winners:
        await eventually(lambda: world.has_no_claims(home(pod)), 30)  # noqa: B023 - awaited here
        await eventually(lambda: quick.sees_free(home(pod), 2), 30)  # noqa: B023
    assert await asyncio.gather(*(quick.bind(pod, home(pod)) for pod in winners)) == [""] * len(winners)


async def end(world: World, winners: list[Json]) -> None:
    """Make room for the losers, which are bound when the test is over; what a next round holds is no release of this one."""
    for pod in winners:
        await world.annotate_pod(pod["metadata"]["name"], {EXIT_CODE: "0"})
    for pod in winners:
        await eventually(lambda: world.has_no_claims(home(pod)), 30)  # noqa: B023 - awaited here


def home(pod: Json) -> str:
    return str(pod["metadata"]["name"]).split(".")[0]


@pytest.mark.parametrize("lost", [Kind.LEDGER, Kind.BINDING])
async def test_c8_reply_to_a_bind_that_is_lost_costs_no_more_than_a_look(
    world: World, lost: Kind, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Claim or Binding: the pod is bound, once, and whoever asked is told."""
    (replica,) = await world.start(settings=SOON)
    for _ in range(rounds(1, 25)):
        pods = await one_pod_each(world)
        with replica.proxy.meet(lost, faults.reply_lost, times=AT_ONCE):
            assert await asyncio.gather(*(replica.bind(pod, home(pod)) for pod in pods)) == [""] * AT_ONCE
    figure(f"C8: {rounds(1, 25) * AT_ONCE} lost replies to a {lost}, each without consequence")


@pytest.mark.parametrize("lost", [Kind.FENCE, Kind.LEDGER])
async def test_c8_reply_to_a_release_that_is_lost_costs_no_more_than_a_look(
    world: World, lost: Kind, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """The fence of a pod whose Binding was lost, or the release of one that has ended: the claim goes, once."""
    (replica,) = await world.start(settings=SOON)
    for _ in range(rounds(1, 25)):
        pods = await one_pod_each(world)
        with ExitStack() as rules:
            if lost is Kind.FENCE:  # now, for the first are fenced while the last are still bound in vain
                rules.enter_context(replica.proxy.meet(Kind.BINDING, faults.lost))
                rule = rules.enter_context(replica.proxy.meet(lost, faults.reply_lost, times=AT_ONCE))
            await asyncio.gather(*(replica.bind(pod, home(pod)) for pod in pods))
            if lost is Kind.LEDGER:
                rule = rules.enter_context(replica.proxy.meet(lost, faults.reply_lost, times=AT_ONCE))
                await end(world, pods)
            for pod in pods:
                await eventually(lambda: world.has_no_claims(home(pod)), 30)  # noqa: B023 - awaited here
            assert len(rule.met) == AT_ONCE
    figure(f"C8: {rounds(1, 25) * AT_ONCE} lost replies to a {'fence' if lost is Kind.FENCE else 'release'}, as before")


async def one_pod_each(world: World) -> list[Json]:
    """Let small nodes join, and return a pod for each that wants all of it."""
    names = await small_nodes(world)
    pods = await world.submit(*(wants(f"{name}.pod", 2) for name in names))
    await world.caught_up()
    return pods
