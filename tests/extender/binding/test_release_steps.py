"""A release, step by step: what it reads live, what it takes in at once, and what it leaves alone."""

from __future__ import annotations

import pytest

from benchmarks.simulated.double.resources import NODES
from extender.binding.intents import AskForLook, FencePod, GetPodVersion
from extender.binding.release import ClaimTimers, Task, release
from extender.cluster.ownership.standing import Standing
from tests.extender.builders import claim, cluster, gpus, node
from tests.extender.releases import bound, due, orphaned
from tests.extender.world import Replica, drive
from topology.annotations import keys
from topology.annotations.records import Claim


def claims_of(replica: Replica) -> tuple[Claim, ...]:
    """Return the claims of the node as the extender knows them."""
    return tuple(claim for claim, _ in replica.state.views["n1"].claims)


def test_what_was_dropped_is_returned_and_known_at_once() -> None:
    """People are told of it; and the next round does not write again before the watch has told."""
    world, replica = bound("p")
    world.set_status("p", "Succeeded", "terminated")
    (task,) = due(replica)
    before = claims_of(replica)
    assert drive(release(replica.state, task), world.execute) == before != ()
    assert claims_of(replica) == ()
    assert replica.attention.due(replica.state, replica.seconds) == []


@pytest.mark.parametrize("claims", [None, ()], ids=["wiped", "edited"])
def test_a_ledger_that_has_to_be_rebuilt_is_left_to_that(claims: tuple[()] | None) -> None:
    """Nothing may rest on what it says."""
    state = cluster(node(claims=(claim(gpus("n1", 0)[0], "p"),)))
    state.nodes.changed(node(claims=claims, version=2))
    assert state.views["n1"].is_broken
    task = Task("n1", dead=True, orphans=frozenset({"p"}), unseen=frozenset({("p", "ml", "p")}))
    steps = release(state, task)
    assert next(steps, None) is None


def test_a_pod_that_a_live_read_finds_is_not_taken_for_gone() -> None:
    """The cache is behind; whatever the agent says, its claims stay."""
    world, replica = bound("p")
    (uid, *_) = world.claims().values()
    replica.state.pods.replaced([])
    drive(release(replica.state, Task("n1", unseen=frozenset({(uid, "default", "p")}))), world.execute)
    assert {standing for _, standing in replica.state.views["n1"].claims} == {Standing.UNSEEN}
    tombstone = replica.state.pods.tombstone(uid)
    assert tombstone is not None and not tombstone.gone


def test_pods_that_are_not_known_are_looked_up_in_order() -> None:
    """Whoever reads a log of it finds the same each time."""
    world, replica = bound("p")
    unseen = frozenset((f"uid-of-{name}", "default", name) for name in "hgfedcba")
    world.intents.clear()
    drive(release(replica.state, Task("n1", unseen=unseen)), world.execute)
    assert [intent.name for intent in world.intents if isinstance(intent, GetPodVersion)] == list("abcdefgh")


def test_reports_are_compared_with_the_one_that_a_live_read_of_the_node_shows() -> None:
    """The cache has not heard of the agent's last one, which may be of a look before the pod was gone, like the next."""
    world, replica = bound("p")
    world.report("n1", 1)
    replica.catch_up()
    world.delete("p", grace_period_seconds=0)
    (task,) = due(replica)
    world.report("n1", 2)
    drive(release(replica.state, task), world.execute)
    world.report("n1", 3)
    replica.reconcile()
    assert len(world.claims()) == 2
    world.report("n1", 4)
    replica.reconcile()
    assert world.claims() == {}


def test_that_an_agent_was_asked_is_known_at_once() -> None:
    """It is not asked again for the same, however far the watch is behind."""
    world, replica = bound("p")
    world.delete("p", grace_period_seconds=0)
    (task,) = due(replica)
    drive(release(replica.state, task), world.execute)
    replica.seconds += 100.0
    assert replica.attention.due(replica.state, replica.seconds) == []
    (asked,) = (intent for intent in world.intents if isinstance(intent, AskForLook))
    (node, *_) = (item for item in world.store.list(NODES).items)
    assert node["metadata"]["annotations"][keys.LOOK] == asked.node_version


def test_an_orphan_that_was_bound_meanwhile_is_not_fenced() -> None:
    """It is no orphan any more."""
    world, replica = orphaned()
    due(replica)
    replica.seconds = 60.0
    (task,) = due(replica)
    Replica(world).bind("p")
    replica.catch_up()
    assert drive(release(replica.state, task), world.execute) == ()
    assert FencePod not in map(type, world.intents)


def test_orphans_wait_a_minute_unless_told_otherwise() -> None:
    """That is longer than any bind may take."""
    _, replica = orphaned()
    attention, state = ClaimTimers(), replica.state
    assert attention.due(state, 0.0) == []
    assert attention.due(state, 59.9) == []
    assert [len(task.orphans) for task in attention.due(state, 60.0)] == [1]


def test_a_pod_that_was_fenced_is_known_in_its_new_version_at_once() -> None:
    """The next bind claims for that one."""
    world, replica = orphaned()
    due(replica)
    replica.seconds = 60.0
    (task,) = due(replica)
    (uid,) = task.orphans
    assert len(drive(release(replica.state, task), world.execute)) == 2
    known, stored = replica.state.pods.get(uid), world.find("p")
    assert known is not None and stored is not None
    assert known.pod.metadata.resource_version == stored["metadata"]["resourceVersion"]
