"""Pods that are not what they were a moment ago, and one that always fails: C11, C12, C14, C17, C25."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from benchmarks.simulated.fleet import SimulatedNode, fleet
from tests.cluster.gpu_cluster import wants
from tests.extender.polling import eventually, until
from tests.process import faults
from tests.process.calls import Kind
from tests.process.tiers import everywhere
from tests.process.world import World, finished_at_once, pods
from tests.world.http_faults import RequestFault

NODE = SimulatedNode("n1", "hgx-h100")
AT_ONCE = 32


@everywhere
async def test_c11_namesake_that_was_created_between_filter_and_bind_is_left_alone(world: World) -> None:
    """A bind is for a UID: the error says so, and the new pod of that name is neither bound nor annotated by it."""
    await world.join(NODE)
    (replica,) = await world.start()
    (first,) = await world.submit(wants("train", 4))
    await eventually(lambda: replica.fits(first, "n1"))
    await world.delete("train")
    (namesake,) = await world.submit(wants("train", 4))
    assert namesake["metadata"]["uid"] != first["metadata"]["uid"]
    assert await replica.bind(first, "n1")
    assert await world.pod("train") == namesake
    assert await world.has_no_claims("n1")
    assert await replica.bind(namesake, "n1") == ""


@everywhere
async def test_c11_wrong_uid_binds_nothing(world: World) -> None:
    """Whoever guesses a UID gets an error, also when the Binding is sent before anybody looks."""
    await world.join(NODE)
    (replica,) = await world.start()
    (pod,) = await world.submit(wants("train", 4))
    stranger = {**pod, "metadata": {**pod["metadata"], "uid": "11111111-2222-3333-4444-555555555555"}}
    assert await replica.bind(stranger, "n1")
    assert await world.pod("train") == pod


@everywhere
async def test_c12_pod_that_is_deleted_before_bind_is_an_error(world: World) -> None:
    """It was there at filter; the claim that a cache may have let through is gone soon."""
    await world.join(NODE)
    (replica,) = await world.start()
    (pod,) = await world.submit(wants("train", 4))
    await eventually(lambda: replica.fits(pod, "n1"))
    replica.proxy.hold_back("pods")
    await world.delete("train")
    assert await replica.bind(pod, "n1")
    await eventually(lambda: world.has_no_claims("n1"))


@everywhere
async def test_c12_pod_that_is_deleted_between_claim_and_binding_is_an_error(world: World) -> None:
    """The Binding finds nobody; the pod was never bound, which proves its claim dead."""
    await world.join(NODE)
    (replica,) = await world.start()
    (pod,) = await world.submit(wants("train", 4))
    held = faults.Held()
    replica.proxy.meet(Kind.BINDING, held, times=1)
    bind = asyncio.create_task(replica.bind(pod, "n1"))
    await held.arrived.wait()
    assert await world.owners("n1") == ["train"] * 4
    await world.delete("train")
    assert (await held.release()).status == 404
    assert await bind
    assert await world.has_no_claims("n1")


@everywhere
async def test_c12_terminating_pod_keeps_its_gpus_until_its_containers_have_ended(
    world: World, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """A deletionTimestamp frees nothing; the end of the containers does, soon."""
    await world.join(NODE)
    (replica,) = await world.start()
    (pod,) = await world.submit(wants("train", 8))
    assert await replica.bind(pod, "n1") == ""
    await eventually(lambda: world.is_running("train"))
    await world.delete("train")
    looks = [False]
    while await world.is_there("train"):
        looks.append(await replica.sees_free("n1", 8))
        if await world.is_running("train"):
            assert not any(looks)
    began = asyncio.get_running_loop().time()
    await eventually(lambda: world.has_no_claims("n1"), goal(2))
    figure(
        f"C12: GPUs freed {asyncio.get_running_loop().time() - began:.2f} s after a deleted pod's containers had ended"
    )


@everywhere
async def test_c14_nothing_is_decided_before_the_cluster_is_known(world: World) -> None:
    """While the first list is under way every verb answers 503, the probe says why, and nobody writes."""
    await world.join(NODE)
    replica = await world.add()
    (pod,) = await world.submit(wants("train", 4))
    held = faults.Held()
    replica.proxy.meet(lambda call: call.kind is Kind.LIST and call.resource == "pods", held, times=1)
    await replica.run(ready=False)
    await until(lambda: held.arrived.is_set() and replica.proxy.count(Kind.WATCH, "nodes"), 30)
    assert "pods-watch failed: not listed yet" in (await replica.look("/readyz"))[1]
    asked = {"filter": {"Pod": pod, "NodeNames": ["n1"]}, "prioritize": {"Pod": pod, "NodeNames": ["n1"]}}
    assert [(await replica.post(verb, body))[0] for verb, body in asked.items()] == [503, 503]
    assert str(await replica.bind(pod, "n1")).startswith("HTTP 503")
    assert not any(call.is_write for call in replica.proxy.calls)
    await held.release()
    await replica.wait_ready()
    assert await replica.bind(pod, "n1") == ""


@everywhere
async def test_n7_node_that_was_made_anew_under_its_name_takes_no_old_plan(world: World) -> None:
    """A cache that has not heard of it plans for the old one in vain; the old claims are void, and the new GPUs are used."""
    await world.join(NODE)
    (replica,) = await world.start()
    old, late = await world.submit(wants("old", 4), wants("late", 4))
    assert await replica.bind(old, "n1") == ""
    await eventually(lambda: world.is_running("old"), 30)
    await world.caught_up()
    replica.proxy.hold_back("nodes", "pods")
    await world.remove_node("n1")
    await world.delete("old", gracePeriodSeconds=0)
    await world.join(SimulatedNode("n1", "dgx-a100"))
    assert await replica.bind(late, "n1")
    assert not await world.node_of("late")
    replica.proxy.let_flow("nodes", "pods")
    await eventually(lambda: replica.binds(late, "n1"), 30)
    assert await world.owners("n1") == ["late"] * 4


async def test_c17_pods_that_were_deleted_while_nobody_was_there_are_released_after_the_start(
    world: World, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Their claims go within 30 s, given that the agents look at their nodes now and then."""
    count = rounds(96, 1000)
    await world.join(*fleet({"hgx-h100": count // 8}))
    (replica,) = await world.start()
    made = await world.submit(*pods(count))
    homes = [f"hgx-h100-{each // 8}" for each in range(count)]
    for start in range(0, count, AT_ONCE):
        some = slice(start, start + AT_ONCE)
        each = zip(made[some], homes[some], strict=True)  # whoever had no time left asks again, as kube-scheduler does
        await asyncio.gather(*(eventually(partial(replica.binds, *one)) for one in each))
    await eventually(lambda: world.are_running(count), 120)
    await replica.kill()
    await asyncio.gather(*(world.delete(pod["metadata"]["name"]) for pod in made))
    await eventually(world.is_empty, 60)
    await replica.run()
    seconds = await world.settle(30)
    figure(f"C17: {count} pods deleted while the extender was down: all released {seconds:.1f} s after it was back")


@everywhere
async def test_c25_pod_whose_bind_always_fails_does_not_slow_the_others(
    world: World, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """A policy refuses it for ever; a loop that waited for it would leave the others a small part of their throughput.

    They keep nine tenths; on a busy machine two turns of the same work differ by more than the tenth.
    """
    await world.join(*fleet({"hgx-h100": 2}))
    (replica,) = await world.start()
    world.schedule()
    seconds = {"alone": 0.0, "beside": 0.0}
    rule = replica.proxy.meet(lambda call: call.path.endswith("doomed/binding"), faults.of(RequestFault.FORBIDDEN))
    for turn in range(6):
        seconds["alone"] += await time_of(world, f"alone-{turn}")
        await world.submit(wants("doomed", 1))
        seconds["beside"] += await time_of(world, f"beside-{turn}")
        await world.delete("doomed")
        if turn and seconds["alone"] / seconds["beside"] >= 0.9:
            break
    assert rule.met
    kept = seconds["alone"] / seconds["beside"]
    figure(f"C25: throughput of others beside a pod whose bind always fails: {kept:.0%}")
    assert 1 - kept <= goal(0.1)


async def time_of(world: World, prefix: str) -> float:
    """Return how long a burst of pods takes to be bound."""
    clock = asyncio.get_running_loop()
    began = clock.time()
    made = await world.submit(*map(finished_at_once, pods(30, prefix=prefix)))
    await eventually(lambda: world.are_bound(made), 60)
    return clock.time() - began
