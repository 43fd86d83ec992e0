"""R3: an unbound pod's claim is fenced, and only then dropped."""

from __future__ import annotations

import pytest

from benchmarks.simulated.double.resources import PODS
from extender.binding.intents import BindPod, Conflict, FencePod, Intent, NoAnswer, Reply, SwapLedger
from extender.binding.release import ClaimTimers, Task, release
from tests.extender.releases import due, orphaned
from tests.extender.world import Replica, World, answer_once, delay_request, drive, lose_request


def test_waits_before_it_fences() -> None:
    """Another process may be in the middle of the bind."""
    _, replica = orphaned()
    assert due(replica) == []
    replica.seconds = 59.9
    assert due(replica) == []
    replica.seconds = 60.0
    uid = replica.world.store.get(PODS, "default", "p")["metadata"]["uid"]
    assert due(replica) == [Task("n1", orphans=frozenset({uid}))]


def test_a_renewed_claim_waits_anew() -> None:
    """The time counts from the last change."""
    world, replica = orphaned()
    due(replica)
    replica.seconds = 59.0
    world.touch("p")
    drive(Replica(world).start_bind("p"), lose_request(world, BindPod))
    due(replica)
    replica.seconds = 61.0
    assert due(replica) == []


def test_fences_then_drops() -> None:
    """In this order, and a Binding that was under way arrives in vain."""
    world = World()
    world.add_pod("p")
    drive(Replica(world).start_bind("p"), delay_request(world, BindPod))
    replica = Replica(world)
    world.intents.clear()
    replica.reconcile()
    assert [type(intent) for intent in world.intents] == [FencePod, SwapLedger]
    world.deliver_late()
    assert "nodeName" not in world.store.get(PODS, "default", "p")["spec"]
    assert world.claims() == {}


def test_a_claim_renewed_after_the_fence_survives() -> None:
    """The drop rests on the ledger as it was before the fence, even if a newer one is known by then."""
    world, replica = orphaned()
    other = Replica(world)

    def renew_after_the_fence(intent: Intent) -> Reply:
        reply = world.execute(intent)
        if isinstance(intent, FencePod):
            other.catch_up()
            drive(other.start_bind("p"), lose_request(world, BindPod))
            replica.catch_up()
        return reply

    due(replica)
    replica.seconds = 60.0
    (task,) = due(replica)
    assert drive(release(replica.state, task), renew_after_the_fence) == ()
    assert len(world.claims()) == 2


@pytest.mark.parametrize("reply", [Conflict("moved"), NoAnswer("down")])
def test_without_the_fence_nothing_is_dropped(reply: Reply) -> None:
    """It is tried again later."""
    world, replica = orphaned()
    due(replica)
    replica.seconds = 60.0
    (task,) = due(replica)
    assert drive(release(replica.state, task), answer_once(world, FencePod, reply)) == ()
    assert len(world.claims()) == 2
    assert due(replica) == []
    replica.seconds = 65.0
    assert due(replica) == [task]


def test_a_pod_bound_at_the_last_moment_keeps_its_claim() -> None:
    """The fence fails, since the Binding has moved the pod."""
    world, replica = orphaned()
    due(replica)
    replica.seconds = 60.0
    (task,) = due(replica)
    Replica(world).bind("p")
    assert drive(release(replica.state, task), world.execute) == ()
    assert world.placed("p") == set(world.claims())


def test_attention_forgets_what_is_settled() -> None:
    """Nothing is remembered of claims that are gone."""
    world, replica = orphaned()
    attention = ClaimTimers()
    attention.due(replica.state, 0.0)
    Replica(world).bind("p")
    replica.catch_up()
    assert attention.due(replica.state, 100.0) == []
    assert attention._since == {}
