"""The Binding that commits a bind, and every odd answer on the way; the world checks INV1 and INV2 after every write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.simulated.double.resources import NODES, PODS
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
from extender.binding.outcome import BindTarget, Bound, Failure, NotBound
from tests.extender.binds import failure_of, kinds, ready, uuid
from tests.extender.builders import PAIRS
from tests.extender.world import Replica, World, answer_once, drive, lose_reply, lose_request, meddle_before
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, encode_ledger
from topology.placement.claims_left import LEDGER_FULL
from topology.request.gpu_request import GpuRequest


class TestTheBinding:
    """B4 and B5: after anything but success only a live read of the pod counts."""

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

    def test_a_definite_refusal_is_dropped_beside_a_claim_that_came_meanwhile(self) -> None:
        """The next bind to the node may write the ledger while the Binding is under way."""
        world, replica = ready("p", "q", machine_name=PAIRS)

        def refused_beside_another(intent: Intent) -> Reply:
            if isinstance(intent, BindPod) and intent.name == "p":
                assert isinstance(replica.bind("q"), Bound)
                return Refused(403, "no")
            return world.execute(intent)

        assert failure_of(drive(replica.start_bind("p"), refused_beside_another)) is Failure.REFUSED
        assert set(world.claims()) == world.placed("q") != set()

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

    def test_a_pod_that_vanished_after_its_claim_was_renewed_keeps_it(self) -> None:
        """Another extender may have bound it, and it may have run: only `release` may find out."""
        world, replica = ready("p")

        def renewed_bound_and_deleted(intent: Intent) -> Reply:
            if not isinstance(intent, BindPod):
                return world.execute(intent)
            assert isinstance(Replica(world).bind("p"), Bound)
            world.delete("p", grace_period_seconds=0)
            replica.catch_up()
            return Conflict("already bound")

        assert failure_of(drive(replica.start_bind("p"), renewed_bound_and_deleted)) is Failure.POD_GONE
        assert len(world.claims()) == 2

    @pytest.mark.parametrize("became", [None, "{", '{"v":2}'])
    def test_a_ledger_that_was_lost_meanwhile_is_not_written_over(self, became: str | None) -> None:
        """Claims that nobody here has read may have been in it; that is for a repair to find out."""
        world, replica = ready("p")

        def refused_after_the_loss(intent: Intent) -> Reply:
            if not isinstance(intent, BindPod):
                return world.execute(intent)
            world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: became}}})
            replica.catch_up()
            return Refused(403, "no")

        with world.unchecked():
            assert failure_of(drive(replica.start_bind("p"), refused_after_the_loss)) is Failure.REFUSED
        assert kinds(world) == ["SwapLedger", "GetPod", "FencePod"]

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
    def test_of_the_live_read_of_the_pod(self, reply: Reply, failure: Failure) -> None:
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
    def test_of_the_live_read_of_the_node(self, reply: Reply, failure: Failure) -> None:
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
        """Claims on GPUs that the node lost stay until their pods are gone; nobody reads more than 192.

        Filter refuses the pod for the same reason, so bind finds out before it writes.
        """
        world, replica = ready("p")
        uid = world.store.get(NODES, "", "n1")["metadata"]["uid"]
        lost = tuple(Claim(f"GPU-{number}", "x", "default", "x", "main", "1") for number in range(192))
        world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: encode_ledger(Ledger(2, lost, uid))}}})
        replica.catch_up()
        outcome = replica.bind("p")
        assert isinstance(outcome, NotBound)
        assert (outcome.failure, outcome.message) == (Failure.NO_FIT, LEDGER_FULL.message)
        assert replica.state.views["n1"].shape.decide(GpuRequest(1)) == LEDGER_FULL

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
        assert drive(steps, slow) == NotBound(Failure.NO_ANSWER, "the Binding's outcome is not known: timed out")
        assert kinds(world) == ["SwapLedger"]
        assert len(world.claims()) == 2
