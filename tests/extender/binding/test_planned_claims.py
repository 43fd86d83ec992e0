"""Pods behind our gate are claimed for before it is opened, and a gate opens in no other version than the claims name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from benchmarks.simulated.double.resources import NODES, PODS
from extender.binding.intents import (
    BindPod,
    Conflict,
    Done,
    FencePod,
    GetNode,
    Intent,
    Refused,
    Reply,
    SwapLedger,
)
from extender.binding.outcome import Bound
from extender.binding.planned_claims import PlannedPod, claim_planned, take_claims_back
from extender.cluster.candidates.holds import Held
from tests.extender.binding.planned_pods import Execute, bind_around_us, claim, claimed, open_gate, queued, uid_of
from tests.extender.builders import cluster
from tests.extender.shares import sharer, sharing_node
from tests.extender.world import (
    Replica,
    World,
    answer_once,
    delay_request,
    drive,
    lose_reply,
    lose_request,
    meddle_before,
)
from topology.annotations import keys
from topology.annotations.records import decode_ledger
from topology.request.gpu_request import GpuRequest


def version_of(world: World, name: str) -> str:
    return str(world.store.get(PODS, "default", name)["metadata"]["resourceVersion"])


def test_all_pods_of_a_node_are_claimed_for_in_one_write() -> None:
    """Each in the version in which it is."""
    world = queued("a", "b")
    assert claim(world, {"a": 0b0011, "b": 0b1100}) == set()
    assert claimed(world) == {"a": 2, "b": 2}
    assert [type(intent) for intent in world.intents] == [SwapLedger]
    (swap,) = world.intents
    assert isinstance(swap, SwapLedger)
    versions = {item.name: item.resource_version for item in decode_ledger(swap.ledger).claims}
    assert versions == {"a": version_of(world, "a"), "b": version_of(world, "b")}


def test_gpus_that_somebody_else_has_are_refused_and_the_others_claimed() -> None:
    """The plan is older than the claim."""
    world = queued("a", "b")
    world.add_pod("thief", 2)
    assert isinstance(Replica(world).bind("thief"), Bound)
    assert claim(world, {"a": 0b0011, "b": 0b1100}) == {"a"}
    assert claimed(world) == {"thief": 2, "b": 2}


def test_pods_of_one_write_never_get_the_same_gpu() -> None:
    """Whatever they were planned on."""
    world = queued("a", "b")
    assert claim(world, {"a": 0b0011, "b": 0b0110}) == {"b"}
    assert claimed(world) == {"a": 2}


def test_a_ledger_that_has_changed_meanwhile_is_read_again() -> None:
    """A bind on the same node takes other GPUs."""
    world = queued("a")
    world.add_pod("other", 2)
    binds = meddle_before(world, SwapLedger, lambda: Replica(world).bind("other"))
    assert claim(world, {"a": 0b1100}, execute=binds) == set()
    assert claimed(world) == {"other": 2, "a": 2}


def test_gpus_that_are_lost_while_the_claim_is_written_are_refused() -> None:
    """The bind in between has taken the very ones."""
    world = queued("a")
    world.add_pod("thief", 4)
    binds = meddle_before(world, SwapLedger, lambda: Replica(world).bind("thief"))
    assert claim(world, {"a": 0b1100}, execute=binds) == {"a"}
    assert claimed(world) == {"thief": 4}


def test_a_claim_that_the_server_refuses_for_good_is_refused() -> None:
    """A right is missing, perhaps: to try again at once is in vain."""
    world = queued("a")
    assert claim(world, {"a": 0b0011}, execute=answer_once(world, SwapLedger, Refused(403, "no"))) == {"a"}
    assert claimed(world) == {}


def test_a_node_that_cannot_be_read_is_left_for_later() -> None:
    """Nothing is known of it."""
    world = queued("a")
    reads = answer_once(world, GetNode, Refused(403, "no"))

    def conflict_first(intent: Intent) -> Reply:
        return Conflict("changed") if isinstance(intent, SwapLedger) else reads(intent)

    assert claim(world, {"a": 0b0011}, execute=conflict_first) == set()
    assert claimed(world) == {}


def test_claims_are_renewed_for_a_pod_that_has_changed() -> None:
    """Its gate is opened in the version that the claims name, and in no other."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    world.touch("a")
    world.intents.clear()
    assert claim(world, {"a": 0b0011}) == set()
    (swap,) = world.intents
    assert isinstance(swap, SwapLedger)
    assert {item.resource_version for item in decode_ledger(swap.ledger).claims} == {version_of(world, "a")}


def test_claims_that_stand_are_not_written_again() -> None:
    """Two planners write them once."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    world.intents.clear()
    assert claim(world, {"a": 0b0011}) == set()
    assert world.intents == []


def test_a_pod_has_claims_on_one_node_only() -> None:
    """Those on another node are dropped first, after a fence: a gate that is to send it there can be opened no more."""
    world = queued("a")
    claim(world, {"a": 0b0011}, "n2")
    before = version_of(world, "a")
    world.intents.clear()
    assert claim(world, {"a": 0b0011}) == set()
    assert [type(intent) for intent in world.intents] == [FencePod, SwapLedger, SwapLedger]
    assert (claimed(world, "n1"), claimed(world, "n2")) == ({"a": 2}, {})
    assert isinstance(open_gate(world, "a", "n2", version=before), Conflict)


def test_other_gpus_on_the_same_node_need_a_fence() -> None:
    """A planner that has not heard that the gate is open must not take away what a Binding under way names."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    late = Replica(world)
    assert isinstance(open_gate(world, "a"), Done)
    drive(Replica(world).start_bind("a"), delay_request(world, BindPod))
    before = world.claims()
    world.report("n1", 2, next(iter(before)))
    late.catch_up(NODES)
    assert claim(world, {"a": 0b1100}, replica=late) == set()
    assert world.claims() == before
    world.deliver_late()
    assert world.placed("a") == before.keys()


def test_claimed_gpus_that_fall_sick_are_replaced_after_a_fence() -> None:
    """The pod still waits behind its gate."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    sick = next(iter(world.claims()))
    world.report("n1", 2, sick)
    world.intents.clear()
    assert claim(world, {"a": 0b1100}) == set()
    assert [type(intent) for intent in world.intents] == [FencePod, SwapLedger]
    assert claimed(world) == {"a": 2}
    assert sick not in world.claims()


@pytest.mark.parametrize("lose", [lose_reply, lose_request, delay_request])
def test_a_claim_without_an_answer_is_made_again_or_taken_back(
    lose: Callable[[World, type[Intent]], Execute],
) -> None:
    """However late the first one arrives, it adds nothing."""
    for goes_on in (True, False):
        world = queued("a")
        replica = Replica(world)
        assert claim(world, {"a": 0b0011}, replica=replica, execute=lose(world, SwapLedger)) == set()
        if goes_on:
            assert claim(world, {"a": 0b0011}, replica=replica) == set()
        else:
            attempts = [drive(take_claims_back(replica.state, [uid_of(world, "a")]), world.execute) for _ in range(2)]
            assert any(attempts)  # where the claim has arrived, the first attempt reads the node again
        world.deliver_late()
        assert claimed(world) == ({"a": 2} if goes_on else {})


def test_no_gate_opens_for_claims_that_were_taken_back() -> None:
    """The patch was under way, in the version that the claims named."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    before = version_of(world, "a")
    assert drive(take_claims_back(Replica(world).state, [uid_of(world, "a")]), world.execute)
    assert claimed(world) == {}
    assert isinstance(open_gate(world, "a", version=before), Conflict)


def test_a_gang_loses_no_claims_of_which_a_gate_is_about_to_open() -> None:
    """A planner that has not heard of all claims takes back those that it knows, and fences the other members first."""
    world = queued("a", "b")
    claim(world, {"a": 0b0011}, "n1")
    late = Replica(world)
    claim(world, {"b": 0b0011}, "n2")
    before = version_of(world, "b")
    assert drive(take_claims_back(late.state, [uid_of(world, name) for name in "ab"]), world.execute)
    assert isinstance(open_gate(world, "b", "n2", version=before), Conflict)


def test_a_gang_of_which_a_gate_is_open_keeps_all_claims() -> None:
    """Though a planner has not heard of it."""
    world = queued("a", "b")
    claim(world, {"a": 0b0011}, "n1")
    late = Replica(world)
    claim(world, {"b": 0b0011}, "n2")
    assert isinstance(open_gate(world, "b", "n2"), Done)
    assert not drive(take_claims_back(late.state, [uid_of(world, name) for name in "ab"]), world.execute)
    assert (claimed(world, "n1"), claimed(world, "n2")) == ({"a": 2}, {"b": 2})


def test_a_gang_keeps_the_claims_that_are_renewed_while_they_are_taken_back() -> None:
    """Another planner has heard of the first fences, and may be opening gates. Ours hears of the renewed claims at once."""
    world = queued("a", "b")
    claim(world, {"a": 0b0011}, "n1")
    claim(world, {"b": 0b0011}, "n2")
    late = Replica(world)

    def renew() -> None:
        claim(world, {"a": 0b0011}, "n1")
        claim(world, {"b": 0b0011}, "n2")
        late.catch_up(NODES)

    execute = before_fence(world, 3, renew)
    assert not drive(take_claims_back(late.state, [uid_of(world, name) for name in "ab"]), execute)
    assert (claimed(world, "n1"), claimed(world, "n2")) == ({"a": 2}, {"b": 2})


def test_a_plan_is_taken_back_as_far_as_ledgers_are_as_they_were() -> None:
    """The fences of a large gang take seconds; the next attempt has less to do."""
    world = queued("a", "b")
    claim(world, {"a": 0b0011}, "n1")
    claim(world, {"b": 0b0011}, "n2")
    world.add_pod("other", 2)
    late = Replica(world)
    execute = before_fence(world, 3, lambda: Replica(world).bind("other", "n1"))
    attempts = [drive(take_claims_back(late.state, [uid_of(world, name) for name in "ab"]), execute)]
    assert (claimed(world, "n1"), claimed(world, "n2")) == ({"a": 2, "other": 2}, {})
    attempts.append(drive(take_claims_back(late.state, [uid_of(world, name) for name in "ab"]), execute))
    assert attempts == [False, True]
    assert claimed(world, "n1") == {"other": 2}


def test_a_gang_keeps_its_claims_if_a_gate_opens_between_the_first_fences() -> None:
    """Another planner has heard of one fence, and not of the other."""
    world = queued("a", "b")
    claim(world, {"a": 0b0011}, "n2")
    claim(world, {"b": 0b0011}, "n1")
    late = Replica(world)

    def open_first() -> None:
        claim(world, {"a": 0b0011}, "n2")
        assert isinstance(open_gate(world, "a", "n2"), Done)

    execute = before_fence(world, 2, open_first)
    assert not drive(take_claims_back(late.state, [uid_of(world, name) for name in "ab"]), execute)
    assert (claimed(world, "n1"), claimed(world, "n2")) == ({"b": 2}, {"a": 2})


def before_fence(world: World, number: int, meddle: Callable[[], object]) -> Execute:
    """Execute everything, and let something happen just before the fence of this number."""
    fences = 0

    def execute(intent: Intent) -> Reply:
        nonlocal fences
        fences += isinstance(intent, FencePod)
        if isinstance(intent, FencePod) and fences == number:
            meddle()
        return world.execute(intent)

    return execute


def test_a_plan_does_not_replace_what_another_planner_claims_for_a_gang() -> None:
    """That one may be opening the gates of the others; only what this plan has counted on goes."""
    world = queued("a")
    claim(world, {"a": 0b0011}, "n2")
    assert claim(world, {"a": 0b0011}, replaces=frozenset()) == {"a"}
    assert (claimed(world, "n1"), claimed(world, "n2")) == ({}, {"a": 2})
    assert claim(world, {"a": 0b0011}, replaces=frozenset({"n2"})) == set()
    assert (claimed(world, "n1"), claimed(world, "n2")) == ({"a": 2}, {})


def test_two_planners_do_not_drop_the_claims_of_each_other() -> None:
    """Both have claimed for a member of a gang: it has a place whichever of them opens its gate."""
    world = queued("a")
    first, second = Replica(world), Replica(world)
    claim(world, {"a": 0b0011}, "n1", replica=first, replaces=frozenset())
    claim(world, {"a": 0b0011}, "n2", replica=second, replaces=frozenset())
    world.touch("a")
    for replica, node in ((first, "n1"), (second, "n2")):
        replica.catch_up()
        assert claim(world, {"a": 0b0011}, node, replica=replica, replaces=frozenset()) == set()
    assert (claimed(world, "n1"), claimed(world, "n2")) == ({"a": 2}, {"a": 2})


def test_claims_of_a_pod_whose_gate_is_open_are_not_taken_back() -> None:
    """A planner is behind, and another one has opened it."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    late = Replica(world)
    assert isinstance(open_gate(world, "a"), Done)
    assert not drive(take_claims_back(late.state, [uid_of(world, "a")]), world.execute)
    late.catch_up()
    assert not drive(take_claims_back(late.state, [uid_of(world, "a")]), world.execute)
    assert claimed(world) == {"a": 2}


def test_our_bind_takes_the_claimed_gpus() -> None:
    """Exactly these, though others would do."""
    world = queued("a")
    claim(world, {"a": 0b1010})
    planned = world.claims().keys()
    open_gate(world, "a")
    assert isinstance(Replica(world).bind("a"), Bound)
    assert world.placed("a") == planned == world.claims().keys()


def test_the_claims_of_a_deleted_pod_are_freed() -> None:
    """It never ran anywhere: the event is proof enough."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    replica = Replica(world)
    world.delete("a", 0)
    replica.reconcile(rounds=1)
    assert claimed(world) == {}


@pytest.mark.parametrize(
    ("opens", "is_pinned", "is_kept"),
    [(False, False, True), (True, False, False), (True, True, True)],
    ids=["gated", "sent", "pinned"],
)
def test_claims_are_kept_as_long_as_the_plan_lives(opens: bool, is_pinned: bool, is_kept: bool) -> None:
    """That of a pod behind our gate is the planner's to take back, and a pinned pod can go nowhere else."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    if opens:
        open_gate(world, "a", is_pinned=is_pinned)
    Replica(world).reconcile(rounds=3)
    assert claimed(world) == ({"a": 2} if is_kept else {})


def test_a_pod_that_is_bound_around_us_as_planned_gets_a_record_of_what_it_has_claimed() -> None:
    """Within seconds, whenever the node's agent reports."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    planned = world.claims()
    open_gate(world, "a")
    replica = Replica(world)
    bind_around_us(world, "a", "n1")
    replica.reconcile(rounds=2, seconds=2.0)
    assert world.placed("a") == planned.keys()
    assert world.claims() == planned


def test_a_pod_that_is_bound_elsewhere_around_us_keeps_no_claims_where_it_was_planned() -> None:
    """Its new node waits for the agent there, as for every pod that is bound around us."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    open_gate(world, "a", is_pinned=False)
    replica = Replica(world)
    bind_around_us(world, "a", "n2")
    replica.reconcile(rounds=2, seconds=2.0)
    assert claimed(world, "n1") == {}
    assert world.placed("a") == frozenset()


def test_shares_of_one_write_have_room_together() -> None:
    """Each fits alone, and both do not."""
    pods = [sharer(name, 30) for name in "ab"]
    gated = [replace(pod, spec=replace(pod.spec, scheduling_gates=[{"name": keys.PLAN_GATE}])) for pod in pods]
    state = cluster(sharing_node(), *gated)
    request = GpuRequest(0, memory_gib=(30,))
    planned = [PlannedPod(name, request, Held(0, ((0, 30, ""),))) for name in "ab"]
    steps = claim_planned(state, "n1", planned)
    swap = next(steps)
    assert isinstance(swap, SwapLedger)
    assert {item.uid for item in decode_ledger(swap.ledger).claims} == {"a"}
    with pytest.raises(StopIteration) as end:
        steps.send(Refused(403, "no"))
    assert end.value.value == {"a", "b"}
