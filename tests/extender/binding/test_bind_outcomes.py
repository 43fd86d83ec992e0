"""What a bind says, and what it leaves behind, where a pod or its GPUs are not as one would expect."""

from __future__ import annotations

import pytest

from extender.binding.bind import bind
from extender.binding.intents import BindPod, Conflict, FencePod, Gone, Intent, Reply, SwapLedger
from extender.binding.outcome import BindTarget, Bound, Failure, NotBound
from extender.cluster.candidates.holds import Held
from tests.extender.binds import failure_of, kinds, ready, uuid
from tests.extender.builders import PAIRS, at, cluster, node, pod
from tests.extender.world import Replica, World, answer_once, drive, lose_request, meddle_before
from topology.annotations import keys
from topology.annotations.records import PlacementRecord, decode_ledger


def bound_around(gpus: int, **annotations: str) -> Replica:
    """Return an extender that knows a pod that somebody else has bound to its node, without a record."""
    world = World()
    world.add_pod("p", gpus, **annotations)
    world.store.bind("default", "p", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})
    return Replica(world)


def test_a_pod_that_is_being_deleted_is_not_bound() -> None:
    """It would be for nothing; nothing is asked for or written."""
    steps = bind(cluster(node(), pod("p", deleting=True)), BindTarget("ml", "p", "p", "n1"), at, deadline=60.0)
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value == NotBound(Failure.POD_DELETED, "pod is being deleted")


@pytest.mark.parametrize(("gpus", "outcome"), [(0, Bound(PlacementRecord({}))), (1, None), (2, None)])
def test_only_a_pod_without_gpus_is_well_bound_without_a_record(gpus: int, outcome: Bound | None) -> None:
    """Of any other one nobody chose the GPUs."""
    found = bound_around(gpus).bind("p")
    assert found == outcome or failure_of(found) is Failure.NO_RECORD


def test_a_pod_whose_request_cannot_be_read_is_not_well_bound_without_a_record() -> None:
    """It may want GPUs."""
    assert failure_of(bound_around(1, **{keys.MIN_BANDWIDTH: "fast"}).bind("p")) is Failure.NO_RECORD


def test_what_is_chosen_is_held_until_the_bind_has_ended() -> None:
    """Other pods are steered elsewhere while the claim is on its way; afterwards it speaks for itself."""
    world, replica = ready("p", machine_name=PAIRS)
    steps = replica.start_bind("p")
    intent = next(steps)
    held = replica.state.holds.others("another", 0.0)
    claimed = {claim.gpu for claim in decode_ledger(intent.ledger).claims} if isinstance(intent, SwapLedger) else {}
    assert held == {"n1": Held(0b11)}
    assert claimed == {uuid(0, PAIRS), uuid(1, PAIRS)}
    reply = world.execute(intent)
    assert isinstance(steps.send(reply), BindPod)
    steps.close()
    assert replica.state.holds.others("another", 0.0) == {}


def test_three_rounds_are_tried_and_no_more() -> None:
    """The third one may be the one that succeeds."""
    for lost, ends in ((2, None), (3, Failure.CONFLICT)):
        world, replica = ready("p")
        races = iter([True] * lost)

        def lose_races(intent: Intent, world: World = world, races: object = races) -> Reply:
            is_lost = isinstance(intent, SwapLedger) and next(races, False)  # type: ignore[call-overload]
            return Conflict("changed") if is_lost else world.execute(intent)

        assert failure_of(drive(replica.start_bind("p"), lose_races)) is ends


def test_after_a_fence_the_claim_is_for_the_version_that_the_binding_names() -> None:
    """So the fence costs one round and not two."""
    world, replica = ready("p", machine_name=PAIRS)
    drive(replica.start_bind("p"), lose_request(world, BindPod))
    world.report("n1", 2, uuid(0, PAIRS))
    replica.catch_up()
    world.intents.clear()
    assert isinstance(replica.bind("p"), Bound)
    assert kinds(world) == ["GetPod", "FencePod", "SwapLedger", "BindPod"]
    (swap,) = (intent for intent in world.intents if isinstance(intent, SwapLedger))
    (binding,) = (intent for intent in world.intents if isinstance(intent, BindPod))
    assert {claim.resource_version for claim in decode_ledger(swap.ledger).claims} == {binding.resource_version}


def test_a_claim_that_a_rival_has_renewed_is_not_withdrawn() -> None:
    """Our own reply comes later than the news of the rival's claim, whose pod was bound and is gone: containers may run."""
    world, replica = ready("p")
    rival = Replica(world)

    def overtaken(intent: Intent) -> Reply:
        reply = world.execute(intent)
        if isinstance(intent, SwapLedger) and not overtakes:
            overtakes.append(intent)
            assert isinstance(rival.bind("p"), Bound)
            replica.catch_up()
            world.delete("p", grace_period_seconds=0)
        return reply

    overtakes: list[Intent] = []
    assert failure_of(drive(replica.start_bind("p"), overtaken)) is Failure.POD_GONE
    assert len(world.claims()) == 2


def test_what_the_last_live_read_shows_is_the_answer() -> None:
    """Two rounds were lost to others who touched the pod, and in the third one somebody bound it elsewhere."""
    world = World("n1", "n2")
    world.add_pod("p")
    replica, rival, tries = Replica(world), Replica(world), []

    def meddle(intent: Intent) -> Reply:
        if isinstance(intent, BindPod) and intent.node == "n1":
            tries.append(intent)
            world.touch("p") if len(tries) < 3 else rival.bind("p", "n2")
        return world.execute(intent)

    assert failure_of(drive(replica.start_bind("p"), meddle)) is Failure.BOUND_ELSEWHERE
    assert (len(tries), world.claims("n1"), len(world.claims("n2"))) == (3, {}, 2)


def test_a_binding_to_what_is_not_found_is_a_refusal_that_says_so() -> None:
    """The pod is there all the same: the node is not, perhaps."""
    world, replica = ready("p")
    outcome = drive(replica.start_bind("p"), answer_once(world, BindPod, Gone()))
    assert outcome == NotBound(Failure.REFUSED, "the Binding was refused: not found")
    assert FencePod.__name__ in kinds(world)


def test_a_withdrawn_claim_is_known_to_be_gone_before_the_watch_says_so() -> None:
    """The next pod's bind need not lose a round for it."""
    world, replica = ready("p", "q")
    drive(replica.start_bind("p"), meddle_before(world, BindPod, lambda: world.delete("p")))
    world.intents.clear()
    assert isinstance(replica.bind("q"), Bound)
    assert kinds(world) == ["SwapLedger", "BindPod"]


def test_a_pod_without_gpus_gets_no_record() -> None:
    """Nothing of ours is written to it."""
    world, replica = ready("p", gpus=0)
    assert isinstance(replica.bind("p"), Bound)
    (binding,) = (intent for intent in world.intents if isinstance(intent, BindPod))
    assert binding.annotations == {}


def test_a_node_that_leaves_the_cache_while_its_ledger_is_written_is_bound_to() -> None:
    """The ledger says that the claim is there; that we cannot withdraw it any more is no reason to fall over."""
    world, replica = ready("p")

    def vanish(intent: Intent) -> Reply:
        reply = world.execute(intent)
        if isinstance(intent, SwapLedger):
            replica.state.nodes.replaced([])
        return reply

    assert isinstance(drive(replica.start_bind("p"), vanish), Bound)


def test_a_pod_that_moves_before_its_fence_is_looked_at_again_and_bound() -> None:
    """It costs a round."""
    world, replica = ready("p", machine_name=PAIRS)
    drive(replica.start_bind("p"), lose_request(world, BindPod))
    world.report("n1", 2, uuid(0, PAIRS))
    replica.catch_up()
    outcome = drive(replica.start_bind("p"), meddle_before(world, FencePod, lambda: world.touch("p")))
    assert isinstance(outcome, Bound)
    assert world.placed("p") == {uuid(2, PAIRS), uuid(3, PAIRS)}
