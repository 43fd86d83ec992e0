"""The bind protocol, reply by reply; the world checks INV1 and INV2 after every write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.double.resources import NODES, PODS
from extender.binding.bind import bind
from extender.binding.intents import (
    BindPod,
    Conflict,
    Done,
    FencePod,
    GetNode,
    GetPod,
    Gone,
    Intent,
    NoAnswer,
    Refused,
    Reply,
    SwapLedger,
)
from extender.binding.outcome import BindTarget, Bound, Failure, NotBound, Outcome
from extender.cluster.holds import Hold
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
from topology import keys
from topology.catalog import machine
from topology.records import Claim, Ledger, PlacementRecord, decode_ledger, decode_placement, encode_ledger

PAIRS = "a100-pcie-8-pairs"


def failure_of(outcome: Outcome) -> Failure | None:
    return outcome.failure if isinstance(outcome, NotBound) else None


def kinds(world: World) -> list[str]:
    return [type(intent).__name__ for intent in world.intents]


def ready(*pods: str, gpus: int = 2, machine_name: str = "rtx-3090-2") -> tuple[World, Replica]:
    """Return a world with these pods pending, and an extender that knows it."""
    world = World(machine_name=machine_name)
    for name in pods:
        world.add_pod(name, gpus)
    return world, Replica(world)


def uuid(position: int, machine_name: str = "rtx-3090-2") -> str:
    return machine(machine_name, host="n1").gpus[position].uuid


class TestTheStraightWay:
    """Nobody interferes."""

    def test_two_writes_bind_a_pod(self) -> None:
        """The claim, then the Binding; nothing is read."""
        world, replica = ready("p")
        outcome = replica.bind("p")
        assert isinstance(outcome, Bound)
        assert kinds(world) == ["SwapLedger", "BindPod"]
        assert frozenset(outcome.containers["main"]) == world.placed("p") == set(world.claims())

    def test_the_placement_record_is_true_to_the_ledger(self) -> None:
        """Each container has its share; affinity and bandwidth are the plan's."""
        world = World(machine_name="dgx-a100")
        limits = {"resources": {"limits": {keys.GPU_RESOURCE: "2"}}}
        containers = [{"name": "a", **limits}, {"name": "b", **limits}]
        pod = world.store.create(PODS, "default", {"metadata": {"name": "p"}, "spec": {"containers": containers}})
        assert isinstance(Replica(world).bind("p"), Bound)
        bound = world.store.get(PODS, "default", "p")
        record = decode_placement(bound["metadata"]["annotations"][keys.PLACEMENT])
        ledger = decode_ledger(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER])
        assert {(claim.container, claim.gpu) for claim in ledger.claims} == {
            (container, gpu) for container, gpus in record.containers.items() for gpu in gpus
        }
        assert {claim.resource_version for claim in ledger.claims} == {pod["metadata"]["resourceVersion"]}
        assert (record.affinity, record.bandwidth is not None) == ("nvlink", True)
        assert record.ledger_generation == ledger.generation == 2

    def test_a_pod_without_gpus_needs_no_claim(self) -> None:
        """One write, no record."""
        world, replica = ready("p", gpus=0)
        assert replica.bind("p") == Bound(PlacementRecord({}))
        assert kinds(world) == ["GetPod", "BindPod"]
        assert (world.claims(), world.placed("p")) == ({}, frozenset())

    def test_a_pod_that_the_cache_has_not_heard_of_is_read_live(self) -> None:
        """The watch may be behind the scheduler's."""
        world, replica = ready()
        world.add_pod("p")
        assert isinstance(replica.bind("p"), Bound)
        assert kinds(world) == ["GetPod", "SwapLedger", "BindPod"]

    def test_binding_again_changes_nothing(self) -> None:
        """The scheduler may have missed the first answer."""
        world, replica = ready("p")
        first = replica.bind("p")
        version = world.store.resource_version
        assert replica.bind("p") == first
        replica.catch_up()
        assert replica.bind("p") == first
        assert world.store.resource_version == version

    def test_the_soft_hold_is_taken_up(self) -> None:
        """What prioritize scored is what the pod gets, though the plan would start with the lowest pair."""
        world, replica = ready("p", machine_name=PAIRS)
        uid = world.store.get(PODS, "default", "p")["metadata"]["uid"]
        replica.state.holds.put(uid, Hold("n1", 0b110000, 60.0))
        replica.bind("p")
        assert world.placed("p") == {uuid(4, PAIRS), uuid(5, PAIRS)}
        assert len(replica.state.holds) == 0

    def test_other_pods_holds_are_avoided_while_there_is_a_choice(self) -> None:
        """They are advice: when nothing else fits, they do not count."""
        world, replica = ready("p", "q", machine_name=PAIRS)
        replica.state.holds.put("other", Hold("n1", 0b00000011, 60.0))
        replica.bind("p")
        assert world.placed("p") == {uuid(2, PAIRS), uuid(3, PAIRS)}
        replica.state.holds.put("other", Hold("n1", 0b11110011, 60.0))
        assert isinstance(replica.bind("q"), Bound)

    def test_dead_claims_are_replaced_in_the_same_write(self) -> None:
        """No release has to come first."""
        world, replica = ready("p", "q")
        replica.bind("p")
        world.set_status("p", "Succeeded")
        replica.catch_up()
        assert isinstance(replica.bind("q"), Bound)
        assert set(world.claims().values()) == {world.store.get(PODS, "default", "q")["metadata"]["uid"]}

    def test_nothing_is_bound_to_a_node_whose_ledger_is_lost(self) -> None:
        """C15: a missing ledger is not an empty one; it is rebuilt first."""
        world, replica = ready("p", "q", gpus=4, machine_name=PAIRS)
        replica.bind("p")
        before = world.claims()
        with world.unchecked():
            world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: None}}})
            late = Replica(world)
            assert isinstance(late.bind("q"), NotBound)
            late.reconcile(rounds=1)
        assert isinstance(late.bind("q"), Bound)
        assert before.items() < world.claims().items()


class TestCleanErrors:
    """Nothing is written, and the answer says why."""

    @pytest.mark.parametrize(
        ("meddle", "failure"),
        [
            (lambda world: world.delete("p"), Failure.POD_GONE),
            (lambda world: (world.delete("p"), world.add_pod("p")), Failure.POD_GONE),
            (lambda world: world.set_status("p", "Failed"), Failure.POD_ENDED),
            (lambda world: Replica(world).bind("p", "n2"), Failure.BOUND_ELSEWHERE),
        ],
        ids=["gone", "a namesake", "ended", "bound elsewhere"],
    )
    @pytest.mark.parametrize("cached", [True, False])
    def test_a_pod_that_cannot_be_bound(
        self, meddle: Callable[[World], object], failure: Failure, *, cached: bool
    ) -> None:
        """Whether the cache knows or the API has to say."""
        world = World("n1", "n2")
        uid = world.add_pod("p")["metadata"]["uid"]
        replica = Replica(world)
        meddle(world)
        if cached:
            replica.catch_up()
        assert failure_of(replica.bind("p", uid=uid)) is failure
        assert world.claims("n1") == {}
        if failure is Failure.POD_GONE and (namesake := world.find("p")):
            assert "nodeName" not in namesake["spec"]

    @pytest.mark.parametrize("cached", [True, False])
    def test_a_pod_that_somebody_else_bound(self, *, cached: bool) -> None:
        """It is on the node, with GPUs that nobody chose."""
        world, replica = ready("p")
        world.store.bind("default", "p", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})
        if cached:
            replica.catch_up()
        assert failure_of(replica.bind("p")) is Failure.NO_RECORD

    def test_a_node_where_nothing_fits(self) -> None:
        """A requirement is enforced here as in filter."""
        world = World(machine_name="t4-4")
        world.add_pod("p", 2, **{keys.REQUIRED_AFFINITY: "nvlink"})
        replica = Replica(world)
        assert failure_of(replica.bind("p")) is Failure.NO_FIT
        assert world.intents == []

    def test_a_closed_node(self) -> None:
        """Its reason is the answer."""
        world, replica = ready("p")
        world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: '{"v":9}'}}})
        replica.catch_up()
        assert replica.bind("p") == NotBound(Failure.NO_FIT, "GPU ledger is of a version that is not understood")
        assert world.intents == []

    def test_a_node_that_nobody_knows(self) -> None:
        """The watch will tell; a guess would not help."""
        _, replica = ready("p")
        assert failure_of(replica.bind("p", "n9")) is Failure.NODE_GONE

    def test_a_wish_that_cannot_be_read(self) -> None:
        """The key and the reason are the answer."""
        world = World()
        world.add_pod("p", 2, **{keys.MIN_BANDWIDTH: "fast"})
        outcome = Replica(world).bind("p")
        assert outcome == NotBound(Failure.BAD_REQUEST, f"{keys.MIN_BANDWIDTH}: 'fast' is no positive decimal number")

    def test_an_extender_that_has_not_seen_the_cluster(self) -> None:
        """It would take every GPU for free."""
        _, replica = ready("p")
        replica.state.pods.synced = False
        assert failure_of(replica.bind("p")) is Failure.NOT_SYNCED


class TestTheClaim:
    """B3: the ledger changes only if it still is what the choice was made on."""

    def test_the_first_claim_of_a_node_loses_a_race_as_any_other(self) -> None:
        """There is no old text to compare with; the node's version takes its place."""
        world = World(ledgers=False)
        for name in ("p", "q"):
            world.add_pod(name)
        replica, rival = Replica(world), Replica(world)
        outcome = drive(replica.start_bind("p"), meddle_before(world, SwapLedger, lambda: rival.bind("q")))
        assert failure_of(outcome) is Failure.NO_FIT

    def test_a_lost_race_is_planned_anew(self) -> None:
        """The rival has taken one pair; another one is free."""
        world, replica = ready("p", "q", machine_name=PAIRS)
        rival = Replica(world)
        outcome = drive(replica.start_bind("p"), meddle_before(world, SwapLedger, lambda: rival.bind("q")))
        assert isinstance(outcome, Bound)
        assert world.placed("p").isdisjoint(world.placed("q"))

    def test_a_lost_race_for_the_last_gpus_is_a_clean_error(self) -> None:
        """The pod has no claim then, and the other one is bound."""
        world, replica = ready("p", "q")
        rival = Replica(world)
        outcome = drive(replica.start_bind("p"), meddle_before(world, SwapLedger, lambda: rival.bind("q")))
        assert failure_of(outcome) is Failure.NO_FIT
        assert world.placed("q") == set(world.claims())

    def test_three_lost_races_are_enough(self) -> None:
        """The scheduler tries again, later."""
        world, replica = ready("p")
        outcome = drive(
            replica.start_bind("p"),
            lambda intent: Conflict("changed") if isinstance(intent, SwapLedger) else world.execute(intent),
        )
        assert failure_of(outcome) is Failure.CONFLICT

    def test_a_topology_that_changed_is_looked_at_again(self) -> None:
        """The digest is part of what the claim rests on."""
        world, replica = ready("p")

        def shrink() -> None:
            world.annotate_node("n1", topology=None, digest=None)

        outcome = drive(replica.start_bind("p"), meddle_before(world, SwapLedger, shrink))
        assert outcome == NotBound(Failure.NO_FIT, "no GPU topology is published")
        assert world.claims() == {}

    def test_a_gpu_that_fell_sick_meanwhile_is_not_claimed(self) -> None:
        """The status is part of what the claim rests on, too."""
        world = World()
        world.report("n1", 1)
        world.add_pod("p")
        replica = Replica(world)
        sicken = meddle_before(world, SwapLedger, lambda: world.report("n1", 2, uuid(0)))
        assert failure_of(drive(replica.start_bind("p"), sicken)) is Failure.NO_FIT
        assert world.claims() == {}

    def test_a_node_that_was_made_anew_takes_no_old_plan(self) -> None:
        """Same name, other UID."""
        world, replica = ready("p")

        def replace() -> None:
            world.store.delete(NODES, "", "n1")
            world.add_node("n1")

        outcome = drive(replica.start_bind("p"), meddle_before(world, SwapLedger, replace))
        assert isinstance(outcome, NotBound)
        assert world.claims() == {}

    @pytest.mark.parametrize("lose", [lose_reply, lose_request])
    def test_a_claim_whose_reply_is_lost_is_looked_up(
        self, lose: Callable[[World, type[Intent]], Callable[[Intent], Reply]]
    ) -> None:
        """Written or not, the next round finds out and goes on."""
        world, replica = ready("p")
        assert isinstance(drive(replica.start_bind("p"), lose(world, SwapLedger)), Bound)

    def test_a_claim_that_arrives_late_arrives_in_vain(self) -> None:
        """The ledger has moved on."""
        world, replica = ready("p")
        drive(replica.start_bind("p"), delay_request(world, SwapLedger))
        claims = world.claims()
        world.deliver_late()
        assert world.claims() == claims

    @pytest.mark.parametrize(
        ("reply", "failure"), [(Refused(403, "policy"), Failure.REFUSED), (NoAnswer("down"), Failure.NO_ANSWER)]
    )
    def test_a_claim_that_cannot_be_written_ends_the_bind(self, reply: Reply, failure: Failure) -> None:
        """Without a claim there is no Binding."""
        world, replica = ready("p")
        assert failure_of(drive(replica.start_bind("p"), lambda _: reply)) is failure
        assert "nodeName" not in world.store.get(PODS, "default", "p")["spec"]

    def test_own_claims_are_kept(self) -> None:
        """A better set may be free by now; another Binding for the old one may still be under way."""
        world, replica = ready("rival", "p", machine_name=PAIRS)
        replica.bind("rival")
        drive(replica.start_bind("p"), lose_request(world, BindPod))
        kept = {
            gpu
            for gpu, uid in world.claims().items()
            if uid == world.store.get(PODS, "default", "p")["metadata"]["uid"]
        }
        world.set_status("rival", "Succeeded")
        replica.catch_up()
        assert isinstance(replica.bind("p"), Bound)
        assert world.placed("p") == kept == {uuid(2, PAIRS), uuid(3, PAIRS)}

    def test_own_claims_that_no_longer_serve_are_fenced_before_others_are_made(self) -> None:
        """The Binding for the first set is held in the network, and must arrive in vain."""
        world, replica = ready("p", machine_name=PAIRS)
        drive(replica.start_bind("p"), delay_request(world, BindPod))
        world.report("n1", 2, uuid(0, PAIRS))
        replica.catch_up()
        world.intents.clear()
        steps = replica.start_bind("p")
        outcome = drive(steps, meddle_before(world, BindPod, world.deliver_late))
        assert isinstance(outcome, Bound)
        assert kinds(world)[:3] == ["GetPod", "FencePod", "SwapLedger"]
        assert world.placed("p") == {uuid(2, PAIRS), uuid(3, PAIRS)} == set(world.claims())


class TestTheBinding:
    """B4 and B5: after anything but success only a live look at the pod counts."""

    def test_a_reply_that_is_lost_after_the_commit_is_a_success(self) -> None:
        """The live pod shows it."""
        world, replica = ready("p")
        assert isinstance(drive(replica.start_bind("p"), lose_reply(world, BindPod)), Bound)

    def test_a_binding_that_never_arrived_is_an_error_and_the_claim_stays(self) -> None:
        """It may still be under way; the same pod takes the claim up again."""
        world, replica = ready("p")
        assert failure_of(drive(replica.start_bind("p"), lose_request(world, BindPod))) is Failure.NO_ANSWER
        claims = world.claims()
        assert len(claims) == 2
        assert isinstance(replica.bind("p"), Bound)
        assert world.placed("p") == set(claims)

    def test_a_pod_that_moved_is_claimed_for_anew(self) -> None:
        """B4 is never sent again alone: the claim must be for the version that the Binding names."""
        world, replica = ready("p")
        outcome = drive(replica.start_bind("p"), meddle_before(world, BindPod, lambda: world.touch("p")))
        assert isinstance(outcome, Bound)
        assert kinds(world) == ["SwapLedger", "BindPod", "GetPod", "SwapLedger", "BindPod"]

    def test_a_definite_refusal_is_fenced_and_the_claim_dropped(self) -> None:
        """The GPUs are free for others at once."""
        world, replica = ready("p", "q")
        outcome = drive(replica.start_bind("p"), answer_once(world, BindPod, Refused(403, "403: no")))
        assert outcome == NotBound(Failure.REFUSED, "the Binding was refused: 403: no")
        assert kinds(world) == ["SwapLedger", "GetPod", "FencePod", "SwapLedger"]
        assert isinstance(replica.bind("q"), Bound)

    def test_a_pod_deleted_after_its_claim_leaves_none(self) -> None:
        """It was never bound, so nothing has to be proven."""
        world, replica = ready("p")
        outcome = drive(replica.start_bind("p"), meddle_before(world, BindPod, lambda: world.delete("p")))
        assert failure_of(outcome) is Failure.POD_GONE
        assert world.claims() == {}

    def test_a_pod_that_vanished_while_its_binding_was_in_doubt_keeps_its_claim(self) -> None:
        """It may have been bound, started and deleted by force: only `release` may find out."""
        world, replica = ready("p")

        def bound_then_deleted(intent: Intent) -> Reply:
            reply = world.execute(intent)
            if not isinstance(intent, BindPod):
                return reply
            world.delete("p", grace_period_seconds=0)
            return NoAnswer("lost")

        assert failure_of(drive(replica.start_bind("p"), bound_then_deleted)) is Failure.POD_GONE
        assert len(world.claims()) == 2

    def test_the_loser_of_two_nodes_drops_its_claim(self) -> None:
        """A pod is bound once and for ever."""
        world = World("n1", "n2")
        world.add_pod("p")
        replica, rival = Replica(world), Replica(world)
        outcome = drive(replica.start_bind("p"), meddle_before(world, BindPod, lambda: rival.bind("p", "n2")))
        assert failure_of(outcome) is Failure.BOUND_ELSEWHERE
        assert (world.claims("n1"), len(world.claims("n2"))) == ({}, 2)

    def test_the_same_bind_by_two_replicas_binds_once(self) -> None:
        """The second one finds it done, and says so."""
        world, replica = ready("p")
        rival = Replica(world)
        outcome = drive(replica.start_bind("p"), meddle_before(world, BindPod, lambda: rival.bind("p")))
        assert outcome == rival.bind("p")
        assert isinstance(outcome, Bound)

    def test_a_pod_that_ended_unbound_drops_its_claim(self) -> None:
        """No version to come will ever be bound."""
        world, replica = ready("p")
        outcome = drive(replica.start_bind("p"), meddle_before(world, BindPod, lambda: world.set_status("p", "Failed")))
        assert failure_of(outcome) is Failure.POD_ENDED
        assert world.claims() == {}


class TestOddAnswers:
    """Each of them ends the bind with an error, and none is taken for a success."""

    @pytest.mark.parametrize(
        ("reply", "failure"),
        [(Gone(), Failure.POD_GONE), (NoAnswer("down"), Failure.NO_ANSWER), (Done(None), Failure.NO_ANSWER)],
    )
    def test_of_the_live_look_at_the_pod(self, reply: Reply, failure: Failure) -> None:
        """The pod is not in the cache."""
        world, replica = ready()
        world.add_pod("p")
        assert failure_of(drive(replica.start_bind("p"), answer_once(world, GetPod, reply))) is failure

    @pytest.mark.parametrize(
        ("reply", "failure"),
        [(Gone(), Failure.POD_GONE), (Refused(403, "policy"), Failure.NO_ANSWER), (Conflict("moved"), None)],
    )
    def test_of_the_fence_before_another_choice(self, reply: Reply, failure: Failure | None) -> None:
        """A pod that moved is looked at again, and bound."""
        world, replica = ready("p", machine_name=PAIRS)
        drive(replica.start_bind("p"), lose_request(world, BindPod))
        world.report("n1", 2, uuid(0, PAIRS))
        replica.catch_up()
        assert failure_of(drive(replica.start_bind("p"), answer_once(world, FencePod, reply))) is failure

    @pytest.mark.parametrize(("reply", "failure"), [(Gone(), Failure.NODE_GONE), (NoAnswer("down"), Failure.NO_ANSWER)])
    def test_of_the_live_look_at_the_node(self, reply: Reply, failure: Failure) -> None:
        """The claim was lost to another one."""
        world, replica = ready("p")

        def answer(intent: Intent) -> Reply:
            match intent:
                case SwapLedger():
                    return Conflict("changed")
                case GetNode():
                    return reply
            return world.execute(intent)

        assert failure_of(drive(replica.start_bind("p"), answer)) is failure

    def test_a_node_that_is_gone_when_its_ledger_is_written(self) -> None:
        """There is nothing to claim any more."""
        world, replica = ready("p")
        outcome = drive(
            replica.start_bind("p"), meddle_before(world, SwapLedger, lambda: world.store.delete(NODES, "", "n1"))
        )
        assert failure_of(outcome) is Failure.NODE_GONE

    def test_a_ledger_that_is_full(self) -> None:
        """Claims on GPUs that the node lost stay until their pods are gone; nobody reads more than 64."""
        world, replica = ready("p")
        uid = world.store.get(NODES, "", "n1")["metadata"]["uid"]
        lost = tuple(Claim(f"GPU-{number}", "x", "default", "x", "main", "1") for number in range(64))
        world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: encode_ledger(Ledger(2, lost, uid))}}})
        replica.catch_up()
        assert failure_of(replica.bind("p")) is Failure.LEDGER_FULL

    @pytest.mark.parametrize("fault", [lose_reply, lose_request])
    def test_a_drop_that_is_lost_leaves_an_orphan_at_worst(
        self, fault: Callable[[World, type[Intent]], Callable[[Intent], Reply]]
    ) -> None:
        """`release` finds it."""
        world, replica = ready("p")
        refuse, lose = answer_once(world, BindPod, Refused(403, "no")), fault(world, SwapLedger)
        writes = 0

        def execute(intent: Intent) -> Reply:
            nonlocal writes
            writes += isinstance(intent, SwapLedger)
            return lose(intent) if writes == 2 else refuse(intent)

        assert failure_of(drive(replica.start_bind("p"), execute)) is Failure.REFUSED
        replica.reconcile()
        assert world.claims() == {}


class TestTheDeadline:
    """Whatever is not known in time is an error; what may be under way stays claimed."""

    def test_nothing_is_asked_after_the_deadline(self) -> None:
        """Each request takes a second, and there are only two."""
        world, replica = ready("p")
        uid = world.store.get(PODS, "default", "p")["metadata"]["uid"]

        def slow(intent: Intent) -> Reply:
            replica.seconds += 1.0
            return NoAnswer("timed out") if isinstance(intent, BindPod) else world.execute(intent)

        steps = bind(replica.state, BindTarget("default", "p", uid, "n1"), replica.clock, deadline=2.0)
        assert drive(steps, slow) == NotBound(Failure.NO_ANSWER, "the pod cannot be read: out of time")
        assert kinds(world) == ["SwapLedger"]
        assert len(world.claims()) == 2
