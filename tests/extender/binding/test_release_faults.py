"""A release beside lost replies, rivals and what vanishes meanwhile."""

from __future__ import annotations

import pytest

from benchmarks.simulated.double.resources import NODES
from extender.binding.intents import FencePod, SwapLedger
from extender.binding.release import release
from tests.extender.releases import bound, due, orphaned
from tests.extender.world import Replica, drive, lose_reply, meddle_before
from topology.annotations import keys


def test_a_lost_reply_is_harmless() -> None:
    """The release is idempotent."""
    world, replica = bound("p")
    world.set_status("p", "Succeeded", "terminated")
    (task,) = due(replica)
    assert drive(release(replica.state, task), lose_reply(world, SwapLedger)) == ()
    assert (world.claims(), due(replica)) == ({}, [])


def test_a_rival_that_binds_first_wins() -> None:
    """Its claim on the same GPUs is not touched."""
    world, replica = bound("p")
    world.set_status("p", "Succeeded", "terminated")
    world.add_pod("q")
    (task,) = due(replica)
    rival = Replica(world)
    drive(release(replica.state, task), meddle_before(world, SwapLedger, lambda: rival.bind("q")))
    assert world.placed("q") == set(world.claims())


@pytest.mark.parametrize("text", ['{"v":9,"claims":[]}', '{"v":2}'])
def test_a_ledger_of_a_newer_version_is_not_touched(text: str) -> None:
    """I4, U1: whoever wrote it knows more than we do."""
    world, replica = bound("p")
    with world.unchecked():
        world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: text}}})
        world.set_status("p", "Succeeded", "terminated")
        world.intents.clear()
        replica.reconcile()
    assert world.intents == []


def test_an_orphan_that_vanished_in_the_meantime_is_not_fenced() -> None:
    """There is nobody to fence any more."""
    world, replica = orphaned()
    due(replica)
    replica.seconds = 60.0
    (task,) = due(replica)
    world.delete("p")
    replica.catch_up()
    drive(release(replica.state, task), world.execute)
    assert FencePod not in map(type, world.intents)


def test_a_node_that_vanished_in_the_meantime_needs_nothing() -> None:
    """Its ledger went with it."""
    world, replica = bound("p")
    world.set_status("p", "Succeeded", "terminated")
    (task,) = due(replica)
    replica.state.nodes.replaced([])
    assert drive(release(replica.state, task), world.execute) == ()


def test_many_tasks_name_their_nodes_in_order() -> None:
    """Whoever runs them sees them in the same order each time."""
    world, replica = bound("p", "q")
    for name in ("q", "p"):
        world.set_status(name, "Succeeded", "terminated")
    assert [task.node for task in due(replica)] == ["n1", "n2"]
