"""A repair, step by step: when it is due, what it says it did, and where it leaves off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.simulated.double.resources import NODES, PODS
from extender.binding.intents import Conflict, Intent, ListPods, NoAnswer, Refused, Reply, SwapLedger, WritePlacement
from extender.binding.outcome import Bound
from extender.binding.repair import Repaired, Repairs, repair
from tests.extender.four_gpus import GPUS, MACHINE, bind_around, damage, kinds, observe, owners, world_of
from tests.extender.world import Replica, World, answer_once, drive
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, PlacementRecord, decode_ledger, decode_placement, encode_ledger
from topology.bandwidth.predict import Wiring, predict
from topology.formats.catalog import machine


def moved() -> tuple[World, Replica]:
    """Return a world where a pod runs on other GPUs than planned, and an extender that knows it."""
    world = world_of("p")
    replica = Replica(world)
    replica.reconcile(rounds=1, seconds=0.0)
    with world.unchecked():
        observe(world, p=(2, 3))
    replica.catch_up()
    return world, replica


def wiped() -> tuple[World, Replica]:
    """Return a world where a ledger was lost, and an extender that knows it."""
    world = world_of("p")
    replica = Replica(world)
    with world.unchecked():
        damage(world, "wiped")
    replica.catch_up()
    return world, replica


def test_what_is_amiss_is_looked_into_after_two_seconds_and_what_is_lost_at_once() -> None:
    """Most of what is amiss are two watches that have not told the same yet."""
    for made, seconds, is_due in ((moved, 0.0, False), (moved, 1.9, False), (moved, 2.0, True), (wiped, 0.0, True)):
        _, replica = made()
        repairs = Repairs()
        repairs.due(replica.state, 7.0)
        assert bool(repairs.due(replica.state, 7.0 + seconds)) is is_due


def test_a_node_that_was_well_in_between_is_waited_for_anew() -> None:
    """The time counts from when it went amiss."""
    world, replica = moved()
    repairs = Repairs()
    repairs.due(replica.state, 0.0)
    observe(world, p=(0, 1))
    replica.catch_up()
    assert repairs.due(replica.state, 1.0) == []
    with world.unchecked():
        observe(world, p=(2, 3))
    replica.catch_up()
    assert repairs.due(replica.state, 2.5) == []
    assert repairs.due(replica.state, 4.5) == ["n1"]


def test_a_refused_record_is_tried_again_after_a_minute() -> None:
    """And not before, unless there is a ledger to correct."""
    world, replica = moved()
    refuse = answer_once(world, WritePlacement, Refused(403, "no"))
    repairs = Repairs()
    with world.unchecked():
        done = drive(repair(replica.state, "n1"), refuse)
    assert done.refused
    repairs.take_note("n1", done, 100.0)
    due = [bool(repairs.due(replica.state, now)) for now in (100.0, 102.0, 159.9, 160.0)]
    assert due == [False, False, False, True]


def test_a_repair_that_went_well_puts_nothing_off() -> None:
    """Only a refusal does."""
    _, replica = moved()
    repairs = Repairs()
    repairs.take_note("n1", Repaired(), 0.0)
    repairs.due(replica.state, 0.0)
    assert repairs.due(replica.state, 2.0) == ["n1"]


@pytest.mark.parametrize(("made", "rebuilt"), [(wiped, True), (moved, False)])
def test_it_says_what_it_did(made: Callable[[], tuple[World, Replica]], *, rebuilt: bool) -> None:
    """A rebuild or a correction, and whose claims are what they hold now; a second time there is nothing to do."""
    world, replica = made()
    with world.unchecked():
        done = drive(repair(replica.state, "n1"), world.execute)
        corrected = [held.pod.key[1] for held in done.corrected]
        assert (done.rebuilt, corrected, done.refused) == (rebuilt, [] if rebuilt else ["p"], False)
        assert drive(repair(replica.state, "n1"), world.execute) == Repaired() == Repaired(False, (), False)


def test_a_first_ledger_is_no_rebuild() -> None:
    """Nothing was lost, so nobody has to be told."""
    world = World("n1", machine_name=MACHINE, ledgers=False)
    assert drive(repair(Replica(world).state, "n1"), world.execute) == Repaired()
    assert keys.LEDGER in world.store.get(NODES, "", "n1")["metadata"]["annotations"]


@pytest.mark.parametrize("made", [wiped, moved])
@pytest.mark.parametrize("reply", [Conflict("changed"), NoAnswer("down"), Refused(403, "no")])
def test_a_ledger_that_was_not_written_is_not_repaired(made: Callable[[], tuple[World, Replica]], reply: Reply) -> None:
    """Nothing is said to be done, and no record is written to a ledger that does not say it."""
    world, replica = made()
    world.intents.clear()
    with world.unchecked():
        assert drive(repair(replica.state, "n1"), answer_once(world, SwapLedger, reply)) == Repaired()
    assert "WritePlacement" not in kinds(world)


def test_a_ledger_that_somebody_else_has_rebuilt_meanwhile_is_left_alone() -> None:
    """It may have grown since; to write what we would have written is to take claims back."""
    world, replica = wiped()

    def overtaken(intent: Intent) -> Reply:
        reply = world.execute(intent)
        if isinstance(intent, ListPods) and intent.node and not rebuilt:
            rebuilt.append(drive(repair(Replica(world).state, "n1"), world.execute))
            replica.catch_up()
        return reply

    rebuilt: list[Repaired] = []
    with world.unchecked():
        assert drive(repair(replica.state, "n1"), overtaken) == Repaired()
    assert [done.rebuilt for done in rebuilt] == [True]
    assert kinds(world).count("SwapLedger") == 2  # the bind's, and the other one's


def test_a_node_that_vanishes_during_its_repair_needs_none() -> None:
    """Its ledger went with it."""
    world, replica = wiped()

    def vanish(intent: Intent) -> Reply:
        reply = world.execute(intent)
        if isinstance(intent, ListPods) and intent.node:
            replica.state.nodes.replaced([])
        return reply

    world.intents.clear()
    with world.unchecked():
        assert drive(repair(replica.state, "n1"), vanish) == Repaired()
        assert drive(repair(replica.state, "n1"), vanish) == Repaired()
    assert kinds(world) == []


def test_a_ledger_that_names_more_gpus_than_any_node_has_is_left_as_it_is() -> None:
    """It could not be read again; the node stays closed, and nothing falls over."""
    world = world_of("p")
    text = world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER]
    ours = decode_ledger(text)
    lost = tuple(Claim(f"GPU-{number}", "x", "default", "x", "main", "1") for number in range(191))
    replica = Replica(world)
    full = encode_ledger(Ledger(ours.generation, (ours.claims[0], *lost), ours.node_uid))
    with world.unchecked():
        world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: full}}})
        replica.catch_up()
        assert replica.state.views["n1"].is_broken
        assert drive(repair(replica.state, "n1"), world.execute) == Repaired()
    assert world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER] == full


@pytest.mark.parametrize("held", [(1,), (2, 3), (1, 2, 3)])
def test_a_corrected_record_says_what_the_gpus_are_worth_together(held: tuple[int, ...]) -> None:
    """One GPU is worth nothing together; the generation is that of the ledger that says it."""
    world = world_of()
    bind_around(world, "stray", len(held))
    observe(world, stray=held)
    replica = Replica(world)
    drive(repair(replica.state, "n1"), world.execute)
    annotations = world.store.get(PODS, "default", "stray")["metadata"]["annotations"]
    record = decode_placement(annotations[keys.PLACEMENT])
    ledger = decode_ledger(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER])
    mask = sum(1 << position for position in held)
    worth = predict(Wiring(machine(MACHINE, host="n1")), mask) if len(held) > 1 else (None, None)
    assert (record.bandwidth is None, record.affinity is None) == (worth[0] is None,) * 2
    if record.bandwidth and worth[0]:
        assert record.bandwidth.point == pytest.approx(worth[0].point, rel=0.01)
    assert set(record.containers["main"]) == {GPUS[position] for position in held}
    assert record.ledger_generation == ledger.generation
    assert isinstance(record, PlacementRecord)
    assert owners(world) == {"stray": set(held)}


def test_a_pod_that_changed_since_it_was_heard_of_moves_nothing() -> None:
    """The next round knows better; what was read is known by then."""
    world, replica = moved()
    world.touch("p")
    with world.unchecked():
        assert drive(repair(replica.state, "n1"), world.execute) == Repaired()
        assert drive(repair(replica.state, "n1"), world.execute).corrected
    assert owners(world) == {"p": {2, 3}}


def test_a_bind_goes_on_beside_what_was_repaired() -> None:
    """The GPUs that the pod left are free for others."""
    world, replica = moved()
    with world.unchecked():
        drive(repair(replica.state, "n1"), world.execute)
    world.add_pod("q", 2)
    replica.catch_up()
    assert isinstance(replica.bind("q"), Bound)
    assert owners(world) == {"p": {2, 3}, "q": {0, 1}}
