"""An API server that is away, slow, busy, failing, behind or unwilling: A1 to A10."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import pytest

from benchmarks.processes.client import Json
from benchmarks.simulated.fleet import SimulatedNode, fleet
from tests.cluster.gpu_cluster import wants
from tests.cluster.objects import PODS
from tests.extender.polling import eventually, until
from tests.process import faults
from tests.process.backends import Kube
from tests.process.calls import Call, Kind
from tests.process.load import load
from tests.process.proxy import Fault
from tests.process.replica import BRISK, revoking_after
from tests.process.tiers import everywhere, on_the_real_one
from tests.process.world import World, pods
from tests.world.http_faults import RequestFault

NODE = SimulatedNode("n1", "hgx-h100")
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmission"
DEADLINE_SECONDS = 3.0
PATIENT = revoking_after("60s")
ANSWER_SECONDS = 5.0
"""What our sample configuration has kube-scheduler wait."""


@everywhere
async def test_a1_outage_costs_errors_and_no_restart(
    world: World, rounds: Callable[[int, int], int], goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """Binds fail in time, memory goes on answering filter, and afterwards all are bound soon."""
    await world.join(*fleet({"hgx-h100": 5}))
    (replica,), clock = await world.start(), asyncio.get_running_loop()
    (probe, *_) = made = await world.submit(*pods(20))
    await world.caught_up()
    began, failed = clock.time(), list[float]()
    async with world.outage():
        world.schedule()
        while clock.time() < began + rounds(3, 60):
            asked = clock.time()
            assert await replica.bind(probe, "hgx-h100-0")
            failed.append(clock.time() - asked)
            assert await replica.fits(probe, "hgx-h100-0")
            await asyncio.sleep(0.2)
    back = clock.time()
    await eventually(lambda: world.are_bound(made), goal(10))
    figure(
        f"A1: {back - began:.0f} s without API server, {len(failed)} binds failed after {max(failed):.2f} s at most; "
        f"all bound {clock.time() - back:.1f} s after its return"
    )
    assert max(failed) <= goal(3)


async def test_a2_slow_answer_costs_the_deadline_and_keeps_the_claim(
    world: World, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """To a claim or a Binding, long after or never: no bind takes longer than it may, and what may have been written stays."""
    (replica,), clock = await world.start(settings=PATIENT), asyncio.get_running_loop()
    late = {"claim-late": faults.Held(), "binding-late": faults.Held()}
    ways: dict[str, Fault] = {**late, "claim-never": faults.silence, "binding-never": faults.silence}
    await world.join(*(SimulatedNode(name, "rtx-3090-2") for name in ways))
    made = await world.submit(*(wants(name, 1) for name in ways))
    await world.caught_up()
    for name, fault in ways.items():
        path = f"nodes/{name}" if name.startswith("claim") else f"{name}/binding"
        replica.proxy.meet(partial(is_write_of, path), fault, times=1)

    async def timed(pod: Json) -> float:
        began = clock.time()
        assert await replica.bind(pod, pod["metadata"]["name"])
        return clock.time() - began

    seconds = await asyncio.gather(*map(timed, made))
    assert min(seconds) >= DEADLINE_SECONDS - 0.1
    owners = {name: await world.owners(name) for name in ways}
    assert owners == {name: [name] if name.startswith("binding") else [] for name in ways}
    for request in late.values():
        await request.release()
    figure(f"A2: binds without an answer ended after {min(seconds):.2f} to {max(seconds):.2f} s")
    assert max(seconds) <= goal(3.5)


def is_write_of(path: str, call: Call) -> bool:
    return call.is_write and call.path.endswith(path)


async def test_a3_storm_of_conflicts_is_met_with_few_attempts(world: World, figure: Callable[[str], None]) -> None:
    """All writes are refused as conflicts: a bind gives up after three rounds. Half of them are: all pods are bound."""
    await world.join(*fleet({"hgx-h100": 5}))
    (replica,), chance = await world.start(), Random(0)
    (first,) = await world.submit(wants("first", 1))
    with replica.proxy.meet(Kind.LEDGER, faults.of(RequestFault.INVALID)) as storm:
        assert await replica.bind(first, "hgx-h100-0")
        assert 1 <= len(storm.met) <= 3
    replica.proxy.meet(Kind.LEDGER, faults.sometimes(chance, 0.5, faults.of(RequestFault.INVALID)))
    replica.proxy.meet(lambda call: call.is_write, faults.sometimes(chance, 0.5, faults.of(RequestFault.CONFLICT)))
    scheduler, made = world.schedule(), await world.submit(*pods(30))
    await eventually(lambda: world.are_bound(made), 60)
    claims, binds = replica.proxy.count(Kind.LEDGER), len(scheduler.attempts)
    figure(f"A3: under a storm of 50 % conflicts 30 pods took {binds} binds and {claims} writes of ledgers")


@pytest.mark.parametrize("pause", [1, 60])
async def test_a4_busy_server_is_left_alone_as_long_as_it_says(
    world: World, pause: int, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """Retry-After of 1 s is waited for within the bind; for one of 60 s there is no time, and the bind is an error.

    Only requests of the kind that was refused are held back: the server counts each kind by itself.
    """
    await world.join(NODE)
    (replica,), clock = await world.start(), asyncio.get_running_loop()
    (pod,) = await world.submit(wants("train", 4))
    await world.caught_up()
    rule, began = (
        replica.proxy.meet(Kind.LEDGER, faults.of(RequestFault.BUSY, retry_after_seconds=pause), times=1),
        clock.time(),
    )
    answer = await replica.bind(pod, "n1")
    assert (answer == "") == (pause == 1)
    assert clock.time() - began <= goal(ANSWER_SECONDS)
    if pause == 60:
        await asyncio.sleep(3)
    refused = rule.met[0].at
    later = [call.at for call in replica.proxy.calls if call.kind is Kind.LEDGER and call.at > refused]
    early = [at for at in later if at < refused + pause]
    assert not early
    figure(f"A4: Retry-After {pause} s: no other ledger written for {min([*later, clock.time()]) - refused:.2f} s")
    if pause == 60:
        await replica.kill()


async def test_a5_failing_server_costs_attempts_and_nothing_else(world: World, figure: Callable[[str], None]) -> None:
    """One answer in ten is a 500, a 503 or a broken connection, of requests that took effect or did not."""
    await world.join(*fleet({"hgx-h100": 15}))
    (replica,), chance, clock = await world.start(), Random(0), asyncio.get_running_loop()
    broken = (faults.of(RequestFault.ERROR), faults.of(RequestFault.UNAVAILABLE), faults.lost, faults.reply_lost)
    replica.proxy.meet(lambda call: call.kind is not Kind.WATCH, faults.sometimes(chance, 0.1, *broken))
    scheduler, made, began = world.schedule(), await world.submit(*pods(100)), clock.time()
    await eventually(lambda: world.are_bound(made), 60)
    failed = sum(attempt.error != "" for attempt in scheduler.attempts)
    figure(
        f"A5: with 10 % broken answers 100 of 100 pods bound in {clock.time() - began:.1f} s, {failed} binds tried again"
    )


async def test_a6_rotated_token_is_read_again(world: World, figure: Callable[[str], None]) -> None:
    """The server takes only the new one from a moment on; the kubeconfig has it, and nobody is restarted."""
    await world.join(NODE)
    replica, clock = await world.add(), asyncio.get_running_loop()
    accepted = "old"
    replica.write_token(accepted)
    replica.proxy.meet(
        lambda call: call.headers.get("Authorization") != f"Bearer {accepted}", faults.of(RequestFault.UNAUTHORIZED)
    )
    await replica.run()
    (pod,) = await world.submit(wants("train", 4))
    await until(lambda: replica.proxy.hears_of_all)
    accepted = "new"
    replica.write_token(accepted)
    replica.proxy.stream("pods").cut()
    began = clock.time()
    await eventually(lambda: replica.binds(pod, "n1"))
    assert await replica.is_ready()
    figure(f"A6: bound {clock.time() - began:.2f} s after the token was rotated, without a restart")


async def test_a6_forbidden_watch_is_not_ready_until_it_is_allowed(
    world: World, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """Within ten seconds, both ways; a restart would not help, so it is alive all the time."""
    (replica,), clock = (
        await world.start(settings={"watch": {**BRISK["watch"], "stream": "1s"}}),
        asyncio.get_running_loop(),
    )
    began = clock.time()
    with replica.proxy.meet(Kind.WATCH, faults.of(RequestFault.FORBIDDEN)):
        await eventually(lambda: replica.says("/readyz", "watch failed: denied"), goal(10))
        assert (await replica.look("/livez"))[0] == 200
    figure(f"A6: not ready {clock.time() - began:.2f} s after its watches were forbidden")
    await eventually(replica.is_ready, goal(10))


async def test_a7_absence_from_a_server_that_is_behind_is_not_believed(
    world: World, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """A replica whose lists and watches are from before the pods were made keeps their claims, and their GPUs from others."""
    await world.join(NODE)
    (informed,), behind = await world.start(), await world.add(revoking_after("500ms"))
    past = await behind.proxy.fetch("/api/v1/pods")
    made = await world.submit(*pods(4))
    assert [await informed.bind(pod, "n1") for pod in made] == [""] * 4
    behind.proxy.meet(lambda call: call.kind is Kind.LIST and call.resource == "pods", faults.answered(past))
    behind.proxy.hold_back("pods")
    await behind.run()
    assert await behind.gauge("pods") == 0
    await asyncio.sleep(rounds(7, 30))
    assert len((await world.ledger("n1")).claims) == 4
    (late,) = await world.submit(wants("late", 5))
    assert await behind.bind(late, "n1")
    figure(f"A7: 4 claims of pods that a replica had not heard of for {rounds(7, 30)} s: all kept")
    await world.delete(made[0]["metadata"]["name"])  # there is room for the late one when all is over


@on_the_real_one
async def test_a8_binding_that_a_foreign_policy_refuses_leaves_no_claim(
    world: World, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """The pod is fenced, its claim dropped at once, and the policy's reason is in the answer."""
    assert isinstance(world.backend, Kube)
    await world.join(NODE)
    (replica,), clock = await world.start(settings=PATIENT), asyncio.get_running_loop()
    (pod,) = await world.submit(wants("train", 4))
    await world.caught_up()
    async with foreign_policy(world, "not on my watch"):
        answer, began = await replica.bind(pod, "n1"), clock.time()
        assert "not on my watch" in str(answer)
        await eventually(lambda: world.has_no_claims("n1"), goal(2))
        figure(f"A8: claim dropped {clock.time() - began:.2f} s after a policy's refusal")
        assert replica.proxy.statuses(Kind.FENCE) == [200]


@everywhere
async def test_a9_node_whose_annotations_are_full_is_an_error_and_no_loop(world: World) -> None:
    """Others have filled the 256 KiB of the object; the bind fails after at most three attempts, and works when there is room."""
    await world.join(NODE)
    (replica,) = await world.start()
    (pod,) = await world.submit(wants("train", 4))
    used = sum(len(key) + len(text) for key, text in (await world.annotations("n1")).items())
    await world.annotate_node("n1", {"example.com/huge": "x" * (256 * 1024 - used - 100)})
    await world.caught_up()
    assert await replica.bind(pod, "n1")
    assert replica.proxy.count(Kind.LEDGER) <= 3
    await world.annotate_node("n1", {"example.com/huge": None})
    await eventually(lambda: replica.binds(pod, "n1"))


@on_the_real_one
async def test_a10_etcd_killed_under_load_loses_nothing(
    world: World, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Again and again, with kill -9, while pods come and go."""
    assert isinstance(world.backend, Kube)
    await world.join(*fleet({"hgx-h100": 5}))
    await world.start(2)
    scheduler, chance, kills = world.schedule(), Random(0), rounds(3, 50)
    async with load(world, 20):
        for _ in range(kills):
            await asyncio.sleep(chance.uniform(0.2, 1))
            await asyncio.to_thread(world.backend.plane.etcd.kill)
            world.backend.plane.etcd.start()
            await asyncio.to_thread(world.backend.plane.apiserver.wait_ready)
    seconds = await world.settle()
    failed = sum(attempt.error != "" for attempt in scheduler.attempts)
    figure(
        f"A10: {kills} kills of etcd, {scheduler.pods_bound} pods bound, {failed} binds failed; "
        f"at rest after {seconds:.1f} s"
    )
    assert scheduler.pods_bound >= kills


@asynccontextmanager
async def foreign_policy(world: World, reason: str) -> AsyncIterator[None]:
    """Let a policy that is not ours refuse every Binding, for the length of a block."""
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
            ]
        },
        "validations": [{"expression": "false", "message": reason}],
    }
    bound = {"policyName": "foreign", "validationActions": ["Deny"]}
    made = {f"{POLICIES}policies": spec, f"{POLICIES}policybindings": bound}
    for path, body in made.items():
        (await world.api.call("POST", path, {"metadata": {"name": "foreign"}, "spec": body})).ok()
    try:
        await eventually(lambda: refuses_bindings(world), 30)
        yield
    finally:
        for path in made:
            await world.api.call("DELETE", f"{path}/foreign")
        await eventually(lambda: takes_bindings(world), 30)


async def refuses_bindings(world: World) -> bool:
    return (await try_to_bind(world)) == 422


async def takes_bindings(world: World) -> bool:
    return (await try_to_bind(world)) != 422


async def try_to_bind(world: World) -> int:
    """Return what the server says to a Binding of the first pod that would change nothing."""
    _, (pod, *_) = await world.backend.objects()
    name = pod["metadata"]["name"]
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
    return (await world.api.call("POST", f"{PODS}/{name}/binding", body, dryRun="All")).code
