"""A Binding that somebody else sent may be under way, too: its pod's claim is not ours to drop."""

from __future__ import annotations

from extender.binding.intents import BindPod, FencePod, Refused, SwapLedger
from extender.binding.outcome import Failure
from tests.extender.binds import failure_of, kinds, ready
from tests.extender.world import Replica, World, answer_once, delay_request, drive, lose_request, meddle_before


def bound_late_and_deleted(world: World) -> None:
    """Let a Binding arrive at last, and delete its pod by force; its containers may run."""
    world.deliver_late()
    world.delete("p", grace_period_seconds=0)


def test_a_claim_that_was_there_before_outlives_its_pod() -> None:
    """The bind before ours died with its Binding under way; it arrived, and containers may run on what it claimed."""
    world, replica = ready("p")
    drive(replica.start_bind("p"), delay_request(world, BindPod))
    claims, heir = world.claims(), Replica(world)
    meddle = meddle_before(world, BindPod, lambda: bound_late_and_deleted(world))
    assert failure_of(drive(heir.start_bind("p"), meddle)) is Failure.POD_GONE
    assert world.claims() == claims != {}


def test_a_claim_that_was_there_before_outlives_a_namesake_of_its_pod() -> None:
    """The live read finds another pod of that name, which says as little about the one that is gone."""
    world, replica = ready("p")
    drive(replica.start_bind("p"), delay_request(world, BindPod))
    claims, heir = world.claims(), Replica(world)

    def succeeded() -> None:
        bound_late_and_deleted(world)
        world.add_pod("p")

    assert failure_of(drive(heir.start_bind("p"), meddle_before(world, BindPod, succeeded))) is Failure.POD_GONE
    assert world.claims() == claims != {}


def test_a_claim_of_ours_alone_leaves_with_its_pod() -> None:
    """Nobody sent a Binding before, so nothing can run."""
    world, replica = ready("p")
    meddle = meddle_before(world, BindPod, lambda: world.delete("p", grace_period_seconds=0))
    assert failure_of(drive(replica.start_bind("p"), meddle)) is Failure.POD_GONE
    assert world.claims() == {}


def test_a_refusal_after_somebody_elses_attempt_is_fenced_before_the_claim_is_dropped() -> None:
    """The first Binding may still come, and must come in vain."""
    world, replica = ready("p")
    drive(replica.start_bind("p"), delay_request(world, BindPod))
    world.intents.clear()
    outcome = drive(Replica(world).start_bind("p"), answer_once(world, BindPod, Refused(403, "no")))
    assert failure_of(outcome) is Failure.REFUSED
    assert kinds(world)[-2:] == [FencePod.__name__, SwapLedger.__name__]
    world.deliver_late()
    assert "nodeName" not in (world.find("p") or {})["spec"]
    assert world.claims() == {}


def test_a_refusal_that_cannot_be_fenced_keeps_the_claim() -> None:
    """Without the fence an earlier Binding could commit to GPUs that nobody claims any more."""
    world, replica = ready("p")
    drive(replica.start_bind("p"), delay_request(world, BindPod))
    refuse, lose = answer_once(world, BindPod, Refused(403, "no")), lose_request(world, FencePod)
    claims = world.claims()
    drive(Replica(world).start_bind("p"), lambda intent: (lose if isinstance(intent, FencePod) else refuse)(intent))
    world.deliver_late()
    assert world.claims() == claims != {}
