"""A plan is carried out whole: all pods of a gang are claimed for, and then opened and followed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.binding.intents import Conflict, Done, NoAnswer, Nominate, OpenGate, Refused, Reply, Step
from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.features.queue import started as started_module
from extender.features.queue.begun import begun_plans
from extender.features.queue.fate import Fate
from extender.features.queue.reserved import reserved_plans
from extender.features.queue.started import RETRY_SECONDS, Ended, StartedUnits
from extender.planning.planner import Start
from extender.planning.units import Assignment, PendingPod, Unit
from tests.extender.builders import PAIRS, at, claim, cluster, gpus, node, pod
from tests.extender.features.queue.queued import bound, claim_all, claim_on, of_gang, opened, queued, read
from tests.extender.planning.gangs import placed
from tests.extender.shares import share, sharer, sharing_node
from topology.annotations import keys
from topology.annotations.records import Claim, decode_ledger, decode_placement
from topology.effort import finish
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

LIFE_SECONDS = 60.0


def begun(state: ClusterState, *, nominates: bool = True, seconds: float = 0.0) -> StartedUnits:
    """Plan the only unit of the queue, and begin to carry it out."""
    (unit,) = read(state).units
    started = StartedUnits(state, LIFE_SECONDS, nominates)
    assert finish(started.begin(Start(unit, placed(state, unit)), seconds))
    return started


@pytest.mark.parametrize("claimed", [(), (7,)])
def test_a_plan_does_not_begin_on_gpus_that_have_been_held_for_others_since_its_search_began(
    claimed: tuple[int, ...],
) -> None:
    """Pods may be moving away from some of them, or the other pod may have claims on a GPU that it does not get any more."""
    claims = tuple(claim(gpu, "other") for gpu in gpus("n1", *claimed, machine_name=PAIRS))
    state = cluster(node("n1", PAIRS, claims=claims), queued("x", 2), pod("other", 2))
    (unit,) = read(state).units
    (place,) = placed(state, unit)
    state.holds.put("other", Hold("n1", place.gpus, 600.0, is_firm=True))
    started = StartedUnits(state, LIFE_SECONDS, nominates=True)
    assert not finish(started.begin(Start(unit, (place,)), 0.0, state.holds.firm(0.0)))


@pytest.mark.parametrize(("held_gib", "begins"), [(9, True), (10, False)])
def test_a_plan_for_a_share_begins_beside_what_has_been_held_of_the_gpu_for_others(held_gib: int, begins: bool) -> None:
    """Another GPU with room does not help: the pod gets exactly what is planned. A pod with claims counts by these."""
    (gpu,), wanted = gpus("n1", 0), GpuRequest(0, memory_gib=(20,))
    waits = sharer("x", 20)
    waits = replace(waits, spec=replace(waits.spec, scheduling_gates=[{"name": keys.PLAN_GATE}]))
    state = cluster(sharing_node(share(gpu, "claimed", 10)), waits, sharer("claimed"))
    place = Assignment(waits, wanted, "n1", Placement((0,), None, None, 0.0, shares=(0,)))
    for name, gib in (("other", held_gib), ("claimed", 10)):
        state.holds.put(name, Hold("n1", 0b1, 600.0, shares=((0, gib, ""),), is_firm=True))
    started = StartedUnits(state, LIFE_SECONDS, nominates=True)
    start = Start(Unit.alone(PendingPod(waits, wanted)), (place,))
    assert finish(started.begin(start, 0.0, state.holds.firm(0.0))) == begins


def test_a_plan_does_not_begin_on_a_gpu_of_which_a_share_has_been_held_since() -> None:
    """Nobody shares it yet."""
    state = cluster(sharing_node(), queued("x", 2))
    (unit,) = read(state).units
    (place,) = placed(state, unit)
    first = place.placement.gpus[0]
    state.holds.put("other", Hold("n1", 1 << first, 600.0, shares=((first, 1, ""),), is_firm=True))
    started = StartedUnits(state, LIFE_SECONDS, nominates=True)
    assert not finish(started.begin(Start(unit, (place,)), 0.0, state.holds.firm(0.0)))


def test_a_plan_that_cannot_begin_leaves_what_was_held_before() -> None:
    """The second pod may not go there any more; the first one keeps its hold."""
    state = cluster(node("n1", PAIRS), of_gang("a"), of_gang("b"))
    for name, gpus_held in (("a", 0b11), ("b", 0b1100)):
        state.holds.put(name, Hold("n1", gpus_held, 600.0, is_firm=True))
    (start,) = reserved_plans(state, read(state), at())
    selects = of_gang("b", version=2, node_selector={"x": "y"})
    state.pods.changed(selects)
    assert not finish(StartedUnits(state, LIFE_SECONDS, nominates=True).begin(start, 0.0))
    assert state.holds.firm_of("a", 0.0) == Hold("n1", 0b11, 600.0, is_firm=True)


def run(steps: Step[bool], reply: Reply | None = None) -> tuple[Nominate | OpenGate | None, bool]:
    """Run one write to its end; returns what was sent, and whether it is done."""
    try:
        intent = next(steps)
    except StopIteration as end:
        return None, end.value
    assert isinstance(intent, Nominate | OpenGate)
    try:
        steps.send(reply or Conflict("changed"))
    except StopIteration as end:
        return intent, end.value
    raise AssertionError("it is one write")


def open_all(started: StartedUnits, state: ClusterState, *pods: Pod, node: str = "n1") -> None:
    claim_all(started, state)
    for item in pods:
        assert run(started.open(item.metadata.uid, 0.0), Done(opened(item, node)))[1]


def fates(ended: list[Ended]) -> dict[str, Fate]:
    return {pod.assignment.pod.metadata.name: pod.fate for pod in ended}


def test_gpus_are_held_for_all_members_from_the_beginning() -> None:
    """Against everybody, before any gate is opened."""
    state = cluster(node("n1", PAIRS), of_gang("a"), of_gang("b"))
    begun(state)
    held = state.holds.kept("somebody", 0.0)["n1"]
    assert held.gpus.bit_count() == 4
    assert all(state.holds.own(name, "n1", 0.0).bit_count() == 2 for name in "ab")


def test_a_pod_is_nominated_before_it_is_claimed_for() -> None:
    """A nomination makes another version of it. One that fails holds nobody up: it is tried once."""
    item = queued("p", 2)
    state = cluster(node("n1", PAIRS), item)
    started = begun(state)
    assert ([*started.to_nominate()], started.to_claim(), started.to_open(0.0)) == (["p"], {}, [])
    intent, is_made = run(started.nominate("p"), Done(item))
    assert isinstance(intent, Nominate) and intent.node == "n1" and is_made
    assert ([*started.to_nominate()], [*started.to_claim()]) == ([], ["n1"])
    again = begun(state)
    assert not run(again.nominate("p"))[1]
    assert ([*again.to_nominate()], [*again.to_claim()]) == ([], ["n1"])


@pytest.mark.parametrize(
    "pods",
    [(of_gang("a"), of_gang("b")), (queued("p", 2, wants={keys.REQUIRED_AFFINITY: "nvlink"}),)],
    ids=["gang", "requires-links"],
)
def test_pinned_pods_are_not_nominated(pods: tuple[Pod, ...]) -> None:
    """kube-scheduler tries no other node for them: it would be a write for nothing."""
    started = begun(cluster(node("n1", PAIRS), *pods))
    assert ([*started.to_nominate()], [*started.to_claim()]) == ([], ["n1"])


def test_gpus_are_claimed_at_once_where_nobody_nominates() -> None:
    """It is a setting: other programs' nominations are no supported interface."""
    started = begun(cluster(node("n1", PAIRS), queued("p", 2)), nominates=False)
    assert ([*started.to_nominate()], [*started.to_claim()]) == ([], ["n1"])


def test_no_gate_is_opened_before_all_members_have_claims() -> None:
    """On whichever nodes they are: a gang has its GPUs in the ledgers, or waits."""
    state = cluster(node("n1", "rtx-3090-2"), node("n2", "rtx-3090-2"), of_gang("a"), of_gang("b"))
    started = begun(state, nominates=False)
    assert sorted(started.to_claim()) == ["n1", "n2"]
    claim_on(started, state, "n1")
    assert ([*started.to_claim()], started.to_open(0.0)) == (["n2"], [])
    assert all(run(started.open(name, 0.0)) == (None, False) for name in "ab" if not state.claimed_on(name))
    claim_all(started, state)
    assert (started.to_claim(), sorted(started.to_open(0.0))) == ({}, ["a", "b"])


def test_members_on_one_node_are_claimed_for_in_one_write() -> None:
    """And a claim that got no answer is written again."""
    state = cluster(node("n1", PAIRS), of_gang("a"), of_gang("b"))
    started = begun(state, nominates=False)
    (swap,) = claim_all(started, state, NoAnswer("timed out"))
    assert {claim.uid for claim in decode_ledger(swap.ledger).claims} == {"a", "b"}
    assert (finish(started.follow(1.0)), [*started.to_claim()], started.to_open(0.0)) == ([], ["n1"], [])


def test_a_plan_whose_claims_are_refused_is_taken_back_and_its_node_steps_back() -> None:
    """With what its other members have claimed on other nodes; then it waits for another plan."""
    state = cluster(node("n1", "rtx-3090-2"), node("n2", "rtx-3090-2"), of_gang("a"), of_gang("b"))
    started = begun(state, nominates=False)
    claim_on(started, state, "n1")
    claim_on(started, state, "n2", Refused(403, "no"))
    assert fates(finish(started.follow(1.0))) == dict.fromkeys("ab", Fate.TAKEN_BACK)
    ((claimed, other),) = started.to_take_back()
    assert (state.claimed_on(claimed), state.memory.setbacks.away(other, "", 1.0)) == ({"n1"}, ["n2"])


def test_a_pod_that_has_changed_is_claimed_for_again_before_its_gate_is_opened() -> None:
    """A fence may have been among its changes, after which somebody has dropped the claims."""
    state = cluster(node("n1", PAIRS), queued("p", 2))
    started = begun(state, nominates=False)
    claim_all(started, state)
    state.pods.changed(queued("p", 2, version=5))
    assert ([*started.to_claim()], started.to_open(0.0)) == (["n1"], [])
    assert run(started.open("p", 0.0)) == (None, False)
    claim_all(started, state)
    intent, _ = run(started.open("p", 0.0))
    assert isinstance(intent, OpenGate) and intent.resource_version == "5"


@pytest.mark.parametrize(
    ("wants", "is_pinned"),
    [({}, False), ({keys.REQUIRED_AFFINITY: "nvlink"}, True), ({keys.MIN_BANDWIDTH: "1"}, True)],
    ids=["plain", "requires-links", "requires-bandwidth"],
)
def test_pods_that_require_something_are_pinned(wants: dict[str, str], is_pinned: bool) -> None:
    """kube-scheduler could send them where they would be refused; others may go elsewhere."""
    state = cluster(node("n1", PAIRS), queued("p", 2, wants=wants))
    started = begun(state, nominates=False)
    claim_all(started, state)
    intent, _ = run(started.open("p", 0.0))
    assert isinstance(intent, OpenGate)
    assert (intent.node, intent.is_pinned) == ("n1", is_pinned)


def test_a_gate_opens_with_a_record_of_what_the_pod_has_claims_on() -> None:
    """Its containers start with it, and it costs no write of its own."""
    state = cluster(node("n1", PAIRS), queued("p", 2))
    started = begun(state, nominates=False)
    claim_all(started, state)
    intent, _ = run(started.open("p", 0.0))
    assert isinstance(intent, OpenGate)
    record = decode_placement(intent.placement)
    claimed = {claim.gpu for claim in state.views["n1"].claims_of("p")}
    assert ({*record.containers["main"]}, record.planned_node) == (claimed, "n1")


def test_members_of_gangs_are_pinned() -> None:
    """Half of a gang elsewhere would be no gang."""
    state = cluster(node("n1", PAIRS), of_gang("a"), of_gang("b"))
    started = begun(state, nominates=False)
    claim_all(started, state)
    intent, _ = run(started.open("a", 0.0))
    assert isinstance(intent, OpenGate) and intent.is_pinned


@pytest.mark.parametrize(("where", "fate"), [("n1", Fate.SERVED), ("n2", Fate.ELSEWHERE)])
def test_every_bind_is_compared_with_the_plan(where: str, fate: Fate) -> None:
    """And nothing is held for the pod any more."""
    state = cluster(node("n1", PAIRS), queued("p", 2))
    started = begun(state, nominates=False)
    open_all(started, state, queued("p", 2))
    assert finish(started.follow(1.0)) == []
    state.pods.changed(bound(queued("p", 2), where))
    assert fates(finish(started.follow(2.0))) == {"p": fate}
    assert (len(started), state.holds.places(2.0)) == (0, {})


def test_a_plan_is_taken_back_whole_while_no_gate_is_open() -> None:
    """A member is gone, and the other one waits for another plan; nothing is held for it."""
    state = cluster(node("n1", PAIRS), of_gang("a"), of_gang("b"))
    started = begun(state)
    state.pods.deleted(of_gang("a"))
    assert fates(finish(started.follow(1.0))) == {"a": Fate.GONE, "b": Fate.TAKEN_BACK}
    assert (len(started), state.holds.places(1.0)) == (0, {})


def test_a_plan_is_taken_back_when_somebody_else_has_its_gpus() -> None:
    """Pods without our gate may be faster."""
    state = cluster(node("n1", "rtx-3090-2"), queued("p", 2))
    started = begun(state)
    taken = gpus("n1", 0, machine_name="rtx-3090-2")[0]
    state.nodes.changed(node("n1", "rtx-3090-2", claims=(claim(taken, "thief"),), generation=2, version=2))
    assert fates(finish(started.follow(1.0))) == {"p": Fate.GPUS_TAKEN}


@pytest.mark.parametrize(
    ("on", "by_us", "noticed"), [("n1", False, ["p"]), ("n2", False, ["p"]), ("n1", True, []), (None, False, [])]
)
def test_preemption_by_kube_scheduler_is_noticed_once(on: str | None, by_us: bool, noticed: list[str]) -> None:
    """It nominates a pod for which others have to end; our own nomination says nothing."""
    state = cluster(node("n1", PAIRS), queued("p", 2))
    started = begun(state, nominates=False)
    open_all(started, state, queued("p", 2))
    item = opened(queued("p", 2), "n1", version=5)
    marks = {keys.NOMINATED: on} if by_us and on else {}
    metadata = replace(item.metadata, annotations={**(item.metadata.annotations or {}), **marks})
    state.pods.changed(replace(item, metadata=metadata, status=replace(item.status, nominated_node_name=on)))
    assert [pod.uid for pod in started.preempting()] == noticed
    assert started.preempting() == []


def test_after_the_first_open_gate_a_plan_is_carried_on() -> None:
    """A member that is gone is planned again when its successor comes; the others go where they were to go."""
    members = of_gang("a"), of_gang("b", size=2)
    state = cluster(node("n1", PAIRS), *members)
    started = begun(state, nominates=False)
    open_all(started, state, members[0])
    state.pods.deleted(members[1])
    assert fates(finish(started.follow(1.0))) == {"b": Fate.GONE}
    state.pods.changed(bound(members[0], "n1"))
    assert fates(finish(started.follow(2.0))) == {"a": Fate.SERVED}


def test_a_gate_that_could_not_be_opened_is_tried_again() -> None:
    """A moment later: the watch may be behind."""
    state = cluster(node("n1", PAIRS), queued("p", 2))
    started = begun(state, nominates=False)
    claim_all(started, state)
    assert not run(started.open("p", 0.0))[1]
    assert started.to_open(0.0) == []
    assert started.to_open(RETRY_SECONDS) == ["p"]


def test_an_open_gate_is_noticed_however_its_write_was_answered() -> None:
    """The answer was lost, and the watch shows the pod without a gate: it is not opened again."""
    state = cluster(node("n1", PAIRS), queued("p", 2))
    started = begun(state, nominates=False)
    state.pods.changed(opened(queued("p", 2), "n1"))
    assert (finish(started.follow(1.0)), started.to_open(0.0)) == ([], [])


def test_gpus_are_held_until_a_pod_that_may_go_elsewhere_has_had_its_time() -> None:
    """kube-scheduler may still place it, on its own."""
    state = cluster(node("n1", PAIRS), queued("p", 2))
    started = begun(state, nominates=False)
    open_all(started, state, queued("p", 2))
    assert finish(started.follow(LIFE_SECONDS - 1)) == []
    assert state.holds.own("p", "n1", LIFE_SECONDS + 1)
    assert fates(finish(started.follow(LIFE_SECONDS))) == {"p": Fate.LEFT}


def test_a_pinned_pod_whose_node_is_gone_is_stranded() -> None:
    """Only a new pod can go elsewhere."""
    members = of_gang("a"), of_gang("b")
    state = cluster(node("n1", PAIRS), *members)
    started = begun(state, nominates=False)
    open_all(started, state, *members)
    state.nodes.replaced([])
    assert fates(finish(started.follow(1.0))) == {"a": Fate.STRANDED, "b": Fate.STRANDED}


def test_a_pinned_pod_that_is_never_bound_holds_up_neither_the_queue_nor_its_gang() -> None:
    """It keeps its claims, and is no longer under way."""
    state = cluster(node("n1", PAIRS), of_gang("a"), of_gang("b"))
    started = begun(state, nominates=False)
    open_all(started, state, of_gang("a"), of_gang("b"))
    assert started.under_way(LIFE_SECONDS - 1) == {"a", "b"}
    assert (finish(started.follow(LIFE_SECONDS)), started.under_way(LIFE_SECONDS), len(started)) == ([], frozenset(), 2)


def test_a_pod_that_its_owner_narrows_after_the_plan_is_planned_again() -> None:
    """A gated pod may gain selectors; it must not be pinned to a node where it cannot go."""
    state = cluster(node("n1", PAIRS), queued("p", 2))
    started = begun(state, nominates=False)
    state.pods.changed(queued("p", 2, version=5, node_selector={"pool": "other"}))
    assert fates(finish(started.follow(1.0))) == {"p": Fate.TAKEN_BACK}


def test_a_gate_that_the_api_server_refuses_to_open_is_not_tried_for_ever() -> None:
    """The plan is taken back, and the pod waits for another one."""
    state = cluster(node("n1", PAIRS), queued("p", 2))
    started = begun(state, nominates=False)
    claim_all(started, state)
    run(started.open("p", 0.0), Refused(422, "affinity"))
    assert fates(finish(started.follow(1.0))) == {"p": Fate.TAKEN_BACK}


def test_claims_of_a_gang_with_an_open_member_are_carried_on() -> None:
    """A pod more than the gang needs appears while the next planner takes over."""
    members = of_gang("a"), of_gang("b")
    state = cluster(node("n1", PAIRS), *members)
    started = begun(state, nominates=False)
    claim_all(started, state)
    run(started.open("a", 0.0), Done(opened(members[0], "n1")))
    state.pods.changed(of_gang("c"))
    next_planner = StartedUnits(state, LIFE_SECONDS, nominates=False)
    assert next_planner.to_take_back() == []
    assert [[item.pod.metadata.name for item in start.assignments] for start in begun_plans(state, read(state))] == [
        ["b"]
    ]


def test_a_member_for_which_two_planners_have_claimed_is_carried_on() -> None:
    """On one of the nodes, whichever it is. Its claims elsewhere stay until its gate is open."""

    def claims(host: str, *owners: str) -> tuple[Claim, ...]:
        uuids = gpus(host, *range(2 * len(owners)), machine_name=PAIRS)
        return tuple(claim(gpu, owners[number // 2], "0") for number, gpu in enumerate(uuids))

    nodes = node("n1", PAIRS, claims=claims("n1", "b")), node("n2", PAIRS, claims=claims("n2", "a", "b"))
    state = cluster(*nodes, of_gang("a"), of_gang("b"))
    (start,) = begun_plans(state, read(state))
    assert [(item.pod.metadata.name, item.node) for item in start.assignments] == [("a", "n2"), ("b", "n1")]
    started = StartedUnits(state, LIFE_SECONDS, nominates=False)
    assert finish(started.begin(start, 0.0))
    assert len(claim_all(started, state)) == 2
    assert sorted(started.to_open(0.0)) == ["a", "b"]
    assert state.claimed_on("b") == {"n1", "n2"}


def test_a_large_gang_is_begun_and_followed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have their turns meanwhile. If one of its pods is gone by then, nothing stays held."""
    monkeypatch.setattr(started_module, "FOLLOWED_AT_ONCE", 2)
    items = [of_gang(name, 1, size=6) for name in "abcdef"]
    state = cluster(node("n1", PAIRS), *items)
    (unit,) = read(state).units
    start, started = Start(unit, placed(state, unit)), StartedUnits(state, LIFE_SECONDS, nominates=True)
    assert len([*started.begin(start, 0.0)]) == len([*started.follow(1.0)]) == 3
    started.forget()
    steps = started.begin(start, 2.0)
    next(steps)
    assert state.holds.places(2.0)
    state.pods.deleted(start.assignments[-1].pod)
    assert (finish(steps), len(started), state.holds.places(2.0)) == (False, 0, {})


def test_a_plan_that_came_too_late_is_not_begun() -> None:
    """Its pod has been opened by somebody, or is gone."""
    item = queued("p", 2)
    state = cluster(node("n1", PAIRS), item)
    (unit,) = read(state).units
    assignments = placed(state, unit)
    state.pods.changed(opened(item, "n1"))
    started = StartedUnits(state, LIFE_SECONDS, nominates=True)
    assert not finish(started.begin(Start(unit, assignments), 0.0))
    assert (len(started), state.holds.places(0.0)) == (0, {})
