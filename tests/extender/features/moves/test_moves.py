"""A plan is carried out as long as it holds, and given up cleanly where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from benchmarks.simulated.double.resources import BUDGETS, PODS, Object
from extender.binding.release import release
from extender.cluster.candidates.holds import Heir, Hold, Holds
from extender.features.moves.course import RoomPlan
from extender.features.moves.events import GIVEN_UP, WAITS
from extender.features.moves.feature import Moves
from extender.features.moves.limits import RecordedMove
from extender.features.moves.settings import MovesSettings
from extender.kubernetes.evictor import EVICTED
from extender.kubernetes.rest import Request
from extender.planning.reservations import Reservation
from tests.extender.features.moves.site import AT_ONCE, TICK_SECONDS, MoveSite
from tests.extender.world import drive
from topology.annotations import keys
from topology.annotations.records import decode_placement
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, NodeGpuStatus


def fragmented(settings: MovesSettings = AT_ONCE, *, moving: int = 1, budget: bool = False, **spec: Any) -> MoveSite:
    """Return two full nodes with three GPUs free, or with two where two pods have to move, and a pod that wants four."""
    site = MoveSite(2, Random(1), settings)
    for number in range(moving):
        site.replica_set(f"moves-{number}", 1, "n0", budget=budget, terminationGracePeriodSeconds=1, **spec)
    site.single("stays", 4, on="n0")
    site.single("other", 5, on="n1")
    site.single("waits", 4)
    return site


def evicted(site: MoveSite) -> list[str]:
    return [pod["metadata"]["labels"]["app"] for pod in site.evicted]


def firm(node: str, gpus: int, expires: float) -> Hold:
    return Hold(node, gpus, expires, is_firm=True)


async def until_begun(site: MoveSite) -> None:
    for _ in range(5):
        await site.tick()
        if site.moves.plans:
            return
    raise AssertionError("no plan was begun")


@pytest.mark.parametrize("moving", [1, 2])
async def test_pods_move_one_after_the_other_and_all_get_what_they_were_promised(moving: int) -> None:
    """The waiting pod has its place, and each moved pod a new one; nothing is held any more."""
    site = fragmented(moving=moving)
    await site.settle()
    assert site.node_of("waits") == "n0"
    moved = {name: nodes for name, nodes in site.owners().items() if name}
    assert moved == {f"moves-{number}": ["n1"] for number in range(moving)}
    assert sorted(evicted(site)) == [f"moves-{number}" for number in range(moving)]
    assert len({*site.evicted_at}) == moving
    assert site.reservations() == {}


def whole_in_the_way(settings: MovesSettings = AT_ONCE, *, restarts: bool = False, waits: bool = True) -> MoveSite:
    """Return two full nodes and one with room. On each of the first two is one of the pods that restart together."""
    site = MoveSite(3, Random(1), settings)
    site.replica_set("whole", 1, "n0", "n1", is_whole=True, restarts=restarts, terminationGracePeriodSeconds=1)
    site.single("stays", 4, on="n0")
    site.single("full", 7, on="n1")
    site.single("other", 5, on="n2")
    if waits:
        site.single("waits", 4)
    return site


@pytest.mark.parametrize("restarts", [True, False])
async def test_pods_that_restart_together_all_get_their_places(*, restarts: bool) -> None:
    """Whether their owner ends the second one after the first, or it is evicted. Both count as moved."""
    site = whole_in_the_way(restarts=restarts)
    await site.settle()
    assert (site.node_of("waits"), site.reservations()) == ("n0", {})
    assert len(site.owners()["whole"]) == 2 and "n0" not in site.owners()["whole"]
    assert evicted(site) == ["whole"] * (1 if restarts else 2)
    assert site.moves.limits.moved_lately(site.seconds) == 2
    assert site.outcomes["move_plans served"] == 1


async def test_no_pod_moves_if_all_that_restart_together_are_more_than_an_hour_may_have() -> None:
    """Three in an hour are enough for two pods, and one is not."""
    for most, moves in ((1, 0), (3, 2)):
        limits = AT_ONCE.model_copy(update={"namespace_per_hour": most, "between_moves": 3600.0})
        site = whole_in_the_way(limits, waits=False)
        await site.tick()  # since then its pods run
        site.pass_time(3600.0)
        site.single("waits", 4)
        await site.settle(10)
        assert len(site.evicted) == moves


async def test_no_pod_is_evicted_once_one_more_restarts_with_it() -> None:
    """Nothing is reserved for that one."""
    site = whole_in_the_way()
    await until_begun(site)
    site.one_more("whole")
    site.replica.catch_up()
    await site.moves.round()
    assert (evicted(site), site.reservations(), site.outcomes["move_plans changed"]) == ([], {}, 1)


async def test_the_pods_left_keep_their_reservations_if_the_waiting_pod_goes_after_the_first_eviction() -> None:
    """Their owner may restart them at any time until the plan's deadline."""
    site = whole_in_the_way()
    await until_begun(site)
    await site.moves.round()
    site.world.delete("waits", 0)
    for _ in range(5):
        await site.tick()
    (leaves,) = (pod["metadata"]["name"] for pod in site.pods() if pod["metadata"]["name"] in ("whole-1", "whole-2"))
    assert (len(site.evicted), len(site.reservations())) == (1, 1)
    site.world.delete(leaves)
    await site.settle()
    assert (len(site.owners()["whole"]), site.reservations()) == (2, {})


def gang_without_room() -> MoveSite:
    """Return five nodes. Two have one pod in the way of a gang of two whole nodes, and one has room for both; two are full."""
    site = MoveSite(5, Random(1))
    for number in range(2):
        site.replica_set(f"moves-{number}", 1, f"n{number}", terminationGracePeriodSeconds=1)
    site.single("stays", 4, on="n2")
    for node in ("n3", "n4"):
        site.single(f"full-{node}", 8, on=node)
    for number in range(2):
        site.single(f"waits-{number}", 8, **{keys.GROUP: "g", keys.GROUP_SIZE: "2", keys.GANG: "required"})
    return site


async def test_a_gang_starts_whole_once_the_pods_in_its_way_have_moved() -> None:
    """Each of them has a new place, and nothing is held any more. The log names the first pod of the gang."""
    site = gang_without_room()
    with capture_logs() as logs:
        await site.settle()
    assert {site.node_of(f"waits-{number}") for number in range(2)} == {"n0", "n1"}
    assert {name: nodes for name, nodes in site.owners().items() if name} == {"moves-0": ["n2"], "moves-1": ["n2"]}
    assert sorted(evicted(site)) == ["moves-0", "moves-1"]
    assert (site.outcomes["move_plans served"], site.reservations()) == (1, {})
    assert [line["pod"] for line in logs if "to move" in line["event"]] == ["default/waits-0"] * 2


async def test_no_pod_moves_for_a_gang_that_has_lost_a_pod_or_asks_for_something_else_by_now() -> None:
    """One pod has moved already; the other one stays."""
    larger = {"metadata": {"annotations": {keys.GROUP_SIZE: "3"}}}
    for edit in (None, {"metadata": {"annotations": {keys.GROUP_AFFINITY: "rack"}}}, larger):
        site = gang_without_room()
        await until_begun(site)
        await site.tick()
        assert len(site.evicted) == 1
        if edit is None:
            site.world.delete("waits-1", 0)
        else:
            site.world.patch(PODS, "waits-1", edit)
        await site.settle()
        assert (len(site.evicted), site.node_of("waits-0")) == (1, None)


async def test_no_pod_moves_for_a_gang_that_has_gained_a_pod() -> None:
    """There is no place for it, and a gang starts whole."""
    site = gang_without_room()
    await until_begun(site)
    await site.tick()
    site.single("waits-2", 8, **{keys.GROUP: "g", keys.GROUP_SIZE: "2", keys.GANG: "required"})
    await site.settle()
    assert (len(site.evicted), site.node_of("waits-0")) == (1, None)


async def test_the_queue_keeps_no_other_gpus_for_a_gang_for_which_pods_move() -> None:
    """It kept the GPUs of running pods for it before, and these count as free for the plan."""
    site = gang_without_room()
    site.kubelet_works = False
    await site.queue_alone()
    assert site.queue.turns.kept()
    await until_begun(site)
    await site.tick()
    assert site.moves.plans
    assert not site.queue.turns.kept()


async def test_what_the_queue_has_kept_of_a_target_by_an_older_plan_ends_no_moves() -> None:
    """Its plan was being made while the GPUs were reserved."""
    site = gang_without_room()
    await until_begun(site)
    await site.tick()
    targets = site.moves.plans[0].plan.targets[:1]
    site.queue.turns.reservation = Reservation("another gang", "default", targets, None)
    await site.moves.round()
    assert (len(site.moves.plans), site.outcomes["move_plans changed"]) == (1, 0)


async def test_every_pod_of_a_gang_says_who_moves_for_it() -> None:
    """And the front page has one row for all of them."""
    site = gang_without_room()
    await until_begun(site)
    for name in ("waits-0", "waits-1"):
        pod = site.moves.state.pods.find("default", name)
        note = pod and site.moves.note(pod)
        assert note and note.line == "0 of 2 pods have been evicted on n0, n1 for it"
    table = site.moves.front_table()
    assert table and [row.cells[0] for row in table.rows] == ["n0, n1, for 2 pods of its gang"]


async def test_both_sides_are_told() -> None:
    """What it costs, for whom, and who waits for it."""
    site = fragmented()
    await site.settle()
    notes = {event.reason: event.note for event in site.recorder.events}
    assert notes[WAITS] == "waits for 1 pod to move from n0, cost 2 GPU-minutes"
    moved = "moved to make room for default/waits, cost 2 GPU-minutes"
    assert notes[EVICTED] == f"{moved}; GPUs of n1 are reserved for the next pod of its owner"


async def test_a_pod_says_who_moves_for_it() -> None:
    """As long as the plan is carried out."""
    site = fragmented(moving=2)
    await until_begun(site)
    waits = site.moves.state.pods.find("default", "waits")
    assert waits
    note = site.moves.note(waits)
    assert note and note.line == "0 of 2 pods have been evicted on n0 for it"
    await site.settle()
    assert site.moves.note(waits) is None


async def test_a_budget_that_allows_nothing_is_kept_and_the_pod_is_left_alone_for_a_while() -> None:
    """The watch still shows the budget as it was. The dry run shows what it is, and no other plan follows at once."""
    site = fragmented(budget=True)
    await until_begun(site)
    site.world.patch(BUDGETS, "moves-0", {"status": {"disruptionsAllowed": 0}}, "status")
    await site.moves.round()
    assert (evicted(site), site.reservations(), site.outcomes["move_plans refused"]) == ([], {}, 1)
    for _ in range(5):
        await site.tick()
    assert site.outcomes["move_plans begun"] == 1
    assert any(event.reason == GIVEN_UP for event in site.recorder.events)


async def test_no_pod_is_evicted_once_the_waiting_pod_is_gone() -> None:
    """Also where only the API server knows that yet."""
    site = fragmented()
    await until_begun(site)
    site.world.delete("waits", 0)
    await site.moves.round()
    assert (evicted(site), len(site.moves.plans)) == ([], 1)
    await site.settle()
    assert (evicted(site), site.reservations(), site.outcomes["move_plans gone"]) == ([], {}, 1)


async def test_the_second_pod_stays_where_the_waiting_pod_goes_after_the_first() -> None:
    """The first one comes back to its reserved place."""
    site = fragmented(moving=2)
    await until_begun(site)
    await site.tick()
    assert len(site.evicted) == 1
    site.world.delete("waits", 0)
    await site.settle()
    assert len(site.evicted) == 1
    assert sum(len(site.owners()[f"moves-{number}"]) for number in range(2)) == 2


@pytest.mark.parametrize("node", ["n0", "n1"])
async def test_no_pod_is_evicted_where_somebody_else_has_taken_a_place(node: str) -> None:
    """Bound around the reservations: on the target, or on the new place of the pod that moves."""
    site = fragmented()
    await until_begun(site)
    name = "intruder"
    spec = {"containers": [{"name": "main", "resources": {"limits": {keys.GPU_RESOURCE: "3"}}}]}
    site.world.store.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})
    site.replica.catch_up()
    plan = site.moves.plans[0]
    for key in plan.uids | plan.keys_of_moved:
        site.replica.state.holds.release(key)  # of another replica, which knows nothing of them
    site.replica.bind(name, node)
    for moved, place in plan.plan.moves:
        site.replica.state.holds.put(plan.key_of(moved), firm(place.node, place.gpus, plan.deadline))
    (target,) = plan.plan.targets
    site.replica.state.holds.put(target.pod.metadata.uid, firm(target.node, target.gpus, plan.deadline))
    await site.moves.round()
    assert (evicted(site), site.outcomes["move_plans changed"]) == ([], 1)


@pytest.mark.parametrize(
    "edit",
    [
        {"spec": {"nodeSelector": {"disk": "fast"}}},
        {"spec": {"affinity": {"nodeAffinity": {}}}},
        {"metadata": {"annotations": {keys.REQUIRED_AFFINITY: "nvlink"}}},
        {"metadata": {"annotations": {keys.GPU_MODEL: "B200"}}},
        {"metadata": {"annotations": {keys.GROUP: "g", keys.GROUP_SIZE: "2"}}},
        {"metadata": {"annotations": {keys.REQUIRED_AFFINITY: "unreadable"}}},
    ],
    ids=["selector", "affinity", "links", "model", "group", "unreadable"],
)
async def test_no_pod_is_evicted_for_a_pod_that_asks_for_something_else_by_now(edit: Object) -> None:
    """Kubernetes lets people edit these of a pod behind a gate."""
    site = fragmented()
    await until_begun(site)
    site.world.patch(PODS, "waits", edit)
    site.replica.catch_up()
    await site.moves.round()
    assert (evicted(site), site.outcomes["move_plans changed"]) == ([], 1)


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen while a plan is checked, which takes steps."""
    check = Moves._holds_still

    async def slowly(moves: Moves, room: RoomPlan) -> bool:
        holds_still = await check(moves, room)
        happens()
        return holds_still

    monkeypatch.setattr(Moves, "_holds_still", slowly)


async def test_a_plan_leaves_a_pod_alone_that_the_queue_has_planned_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue holds GPUs for it, and these stay held."""
    site = fragmented()
    await site.queue_alone()
    planned = firm("n1", 0b1111, 600.0)
    meanwhile(monkeypatch, lambda: site.replica.state.holds.put(site.uid_of("waits"), planned))
    await site.moves.round()
    assert site.moves.plans == []
    assert site.replica.state.holds.firm_of(site.uid_of("waits"), site.seconds) == planned


@pytest.mark.parametrize("why", ["the waiting pod is gone", "another replica plans", "the owner forbids it"])
async def test_no_pod_is_evicted_if_something_happens_while_the_plan_is_checked(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Between the last look and the eviction there is nothing to wait for."""
    site = fragmented()
    await until_begun(site)

    def happens() -> None:
        if why == "the waiting pod is gone":
            site.world.delete("waits", 0)
        elif why == "the owner forbids it":
            site.world.patch(PODS, "moves-0-1", {"metadata": {"annotations": {keys.MOVABLE: "false"}}})
        else:
            site.is_leader = False
        site.replica.catch_up()

    meanwhile(monkeypatch, happens)
    await site.moves.round()
    assert evicted(site) == []


@pytest.mark.parametrize("is_evicted", [True, False])
async def test_the_limits_count_evictions_and_no_plans(monkeypatch: pytest.MonkeyPatch, is_evicted: bool) -> None:
    """The waiting pod goes when all dry runs have been granted; otherwise a pod moves, and no more may in this hour."""
    site = fragmented(AT_ONCE.model_copy(update={"namespace_per_hour": 1}))
    await until_begun(site)
    if not is_evicted:

        def goes() -> None:
            site.world.delete("waits", 0)
            site.replica.catch_up()

        meanwhile(monkeypatch, goes)
    for _ in range(2):
        await site.moves.round()
    assert bool(evicted(site)) == is_evicted
    assert site.moves.limits.may_ask("default", site.seconds) == (not is_evicted)


async def test_no_pod_is_evicted_whose_owner_has_lost_another_one_since_the_plan() -> None:
    """Plans that overlap keep the time between two moves."""
    site = fragmented(AT_ONCE.model_copy(update={"between_moves": 3600.0}))
    site.pass_time(3600.0)
    await until_begun(site)
    (moved, _) = site.moves.plans[0].plan.moves[0]
    sibling = replace(RecordedMove.of(moved.wanted.pod, "default", site.seconds), uid="of a sibling")
    site.moves.limits.moved(sibling)
    await site.moves.round()
    assert (evicted(site), site.outcomes["move_plans refused"]) == ([], 1)


async def test_no_second_pod_is_evicted_once_the_gpu_of_the_first_is_sick() -> None:
    """It would not be free although both pods leave."""
    site = fragmented(moving=2)
    await until_begun(site)
    site.kubelet_works = False  # the first pod is still there
    while not site.evicted:
        await site.tick()
    (gpu,) = decode_placement(site.evicted[0]["metadata"]["annotations"][keys.PLACEMENT]).containers["main"]
    sick = encode_status(NodeGpuStatus(2, (GpuStatus(gpu, healthy=False),)))
    site.world.annotate_node("n0", status=sick)
    site.replica.catch_up()
    site.pass_time(10.0)
    await site.moves.round()
    assert (len(site.evicted), site.outcomes["move_plans changed"]) == (1, 1)


async def test_no_pod_is_evicted_that_requests_something_else_than_its_new_place_gives() -> None:
    """Nothing would be held for its successor that requests the same."""
    site = fragmented()
    await until_begun(site)
    site.world.patch(PODS, "moves-0-1", {"metadata": {"annotations": {keys.REQUIRED_AFFINITY: "nvlink"}}})
    site.replica.catch_up()
    await site.moves.round()
    assert (evicted(site), site.outcomes["move_plans changed"]) == ([], 1)


async def test_no_pod_is_evicted_whose_owner_forbids_it_by_now() -> None:
    """The plan ends with it."""
    site = fragmented()
    await until_begun(site)
    site.world.patch(PODS, "moves-0-1", {"metadata": {"annotations": {keys.MOVABLE: "false"}}})
    site.replica.catch_up()
    await site.moves.round()
    assert (evicted(site), site.outcomes["move_plans changed"]) == ([], 1)


async def test_a_reserved_place_is_kept_from_pods_of_the_owner_that_wait_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of all pods that wait, only these are remembered for that."""
    site = fragmented()
    await until_begun(site)
    sibling = site.one_more("moves-0")
    site.replica.catch_up()
    heirs = list[Heir]()
    monkeypatch.setattr(Holds, "bequeath", lambda _holds, _key, heir: heirs.append(heir))
    await site.moves.round()
    assert [heir.not_for for heir in heirs] == [{site.uid_of(sibling)}]


async def test_a_plan_ends_in_time_and_nothing_stays_reserved() -> None:
    """The evicted pod takes longer to end than the plan may take."""
    settings = AT_ONCE.model_copy(update={"patience": 5 * TICK_SECONDS})
    site = fragmented(settings)
    site.kubelet_works = False
    await until_begun(site)
    for _ in range(8):
        await site.tick()
    assert evicted(site) == ["moves-0"]
    assert site.outcomes["move_plans deadline"] == 1
    assert site.reservations() == {}


async def test_a_replica_that_does_not_plan_moves_nothing_and_holds_nothing() -> None:
    """Another one has the Lease now."""
    site = fragmented()
    await until_begun(site)
    assert site.reservations()
    site.is_leader = False
    await site.moves.round()
    assert (site.moves.plans, site.reservations(), evicted(site)) == ([], {}, [])


def cheapest_on_n0() -> MoveSite:
    """Return two nodes on each of which the move of a pod makes room."""
    site = MoveSite(2, Random(1), AT_ONCE)
    for node, cost in (("n0", "1m"), ("n1", "5m")):
        annotations = {keys.MOVABLE: "true", keys.RESTART_COST: cost}
        site.replica_set(f"on-{node}", 1, node, annotations=annotations, terminationGracePeriodSeconds=1)
        site.single(f"stays-{node}", 4, on=node)
    site.single("waits", 4)
    return site


async def test_another_pod_moves_if_the_eviction_of_the_cheapest_is_refused() -> None:
    """A policy may refuse it for good, and each search would choose it again."""
    site = cheapest_on_n0()
    send = site.moves.send

    async def refusing(request: Request) -> tuple[int, bytes]:
        return (403, b"{}") if "/on-n0" in request.path else await send(request)

    site.moves.send = refusing
    for _ in range(30):
        await site.tick()
    assert (evicted(site), site.node_of("waits")) == (["on-n1"], "n1")


async def test_another_pod_moves_if_the_cheapest_changes_all_the_time() -> None:
    """Its eviction in the version that was looked at never comes true, and its owner may write to it many times a second."""
    site = cheapest_on_n0()
    send = site.moves.send

    async def changing(request: Request) -> tuple[int, bytes]:
        if "/on-n0" in request.path:
            name = request.path.split("/")[-2]
            site.world.patch(PODS, name, {"metadata": {"annotations": {"beat": str(site.seconds)}}})
        return await send(request)

    site.moves.send = changing
    for _ in range(40):
        await site.tick()
    assert (evicted(site), site.node_of("waits")) == (["on-n1"], "n1")


async def test_no_pod_moves_once_there_is_room() -> None:
    """The queue may have looked half a minute ago, and plans the pod at its next look."""
    site = fragmented()
    await site.queue_alone()
    site.world.set_status("stays", "Succeeded", "terminated")
    site.replica.catch_up()
    for task in site.replica.attention.due(site.replica.state, site.seconds):
        drive(release(site.replica.state, task), site.world.execute)
    site.replica.catch_up()
    await site.moves.round()
    assert not site.moves.plans
    await site.settle()
    assert (site.node_of("waits"), evicted(site)) == ("n0", [])


async def test_no_pod_moves_that_has_not_come_through_the_queue() -> None:
    """The next pod of its owner would have no gate, and not wait for what is reserved."""
    site = fragmented(schedulerName="gputopo")
    site.world.patch(PODS, "moves-0-1", {"metadata": {"annotations": {keys.PLANNED: None}}})
    await site.settle(10)
    assert (evicted(site), site.outcomes["move_plans begun"]) == ([], 0)


async def test_nobody_moves_before_the_pod_has_waited() -> None:
    """Pods end all the time."""
    site = fragmented(AT_ONCE.model_copy(update={"after": 1e9}))
    await site.settle(10)
    assert (evicted(site), site.outcomes["move_plans begun"]) == ([], 0)


@pytest.mark.slow
async def test_flapping_pods_and_impossible_requests_move_no_pod_more_often_than_the_limits_allow() -> None:
    """A tenant deletes and creates pods that wait, for two hours: each owner moves once an hour, and three pods for it.

    The planner starts again now and then.
    """
    hour = {"enabled": True, "after": "0s", "betweenMoves": "1h", "namespacePerHour": 3, "perHour": 60}
    site = MoveSite(8, Random(2), MovesSettings.model_validate(hour))
    for number, node in enumerate(site.nodes):
        site.replica_set(f"victim-{number}", 1, node)
        site.single(f"fixed-{number}", 4, on=node)
    site.pass_time(3600.0)
    for number in range(100):
        site.single(f"w{number}", 4 if number % 3 else 64, **({keys.REQUIRED_AFFINITY: "nvlink"} if number % 2 else {}))
        for _ in range(3):
            await site.tick()
        if not site.node_of(f"w{number}"):
            site.world.delete(f"w{number}", 0)
        site.pass_time(66.0)
        if number % 7 == 0:
            site.started_anew()
    moments = dict[str, list[float]]()
    for pod, at in zip(site.evicted, site.evicted_at, strict=True):
        moments.setdefault(pod["metadata"]["labels"]["app"], []).append(at)
    for times in moments.values():
        assert all(later - before >= 3600.0 for before, later in pairwise(times))
    lately = [sum(at <= later < at + 3600.0 for later in site.evicted_at) for at in site.evicted_at]
    assert max(lately) == 3
