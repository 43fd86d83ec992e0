"""Claims are taken back with proof, and only with proof: R1 and R2."""

from __future__ import annotations

from typing import Literal

import pytest

from benchmarks.simulated.double.resources import NODES
from extender.binding.intents import AskForLook, BindPod, SwapLedger
from extender.binding.outcome import Bound
from extender.binding.release import Task, release
from tests.extender.builders import claim, cluster, gpus, node, pod, running
from tests.extender.releases import answer, bound, due, observe, orphaned, reports
from tests.extender.world import Replica, World, drive, lose_request
from topology.annotations import keys
from topology.annotations.records import Observed, decode_ledger, encode_observed


def test_an_idle_cluster_needs_nothing() -> None:
    """No task, no request."""
    world, replica = bound("p")
    world.intents.clear()
    replica.reconcile()
    assert world.intents == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_gives_its_gpus_back(phase: str) -> None:
    """One write, which also wakes the pods that wait."""
    world, replica = bound("p")
    world.set_status("p", phase, "terminated")
    world.intents.clear()
    replica.reconcile()
    assert [type(intent) for intent in world.intents] == [SwapLedger]
    assert world.claims() == {}


@pytest.mark.parametrize(
    "state", [None, "running"], ids=["rejected by its kubelet, perhaps", "called ended by another"]
)
def test_a_final_phase_without_the_end_of_containers_waits_for_a_look(state: Literal["running"] | None) -> None:
    """The agent is asked, and its answer frees what it does not show held; the pod may stay for days."""
    world, replica = bound("p")
    world.set_status("p", "Failed", state)
    replica.reconcile()
    assert world.claims() != {}
    version = world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LOOK]
    later = str(world.store.resource_version)
    assert int(version) <= int(later)
    world.annotate_node("n1", observed=encode_observed(Observed({}, 1, node_version=later)))
    replica.reconcile()
    assert world.claims() == {}
    assert Replica(world).state.views["n1"].shape.free == 0b11


def test_a_dead_claim_leaves_a_ledger_that_cannot_take_what_others_hold() -> None:
    """Whoever binds pods around us must not keep the GPUs of those that ended; 191 of its claims are on GPUs that are lost."""
    lost = tuple(claim(f"GPU-{number}", "lost") for number in range(191))
    held = gpus("n1", 0, 1, 2)
    ended = pod("ended", 1, on="n1", placed=held[:1], phase="Succeeded", terminated=True)
    state = cluster(node(claims=(*lost, claim(held[0], "ended"))), ended, running("around-us", "n1", *held[1:]))
    steps = release(state, Task("n1", dead=True))
    swap = next(steps)
    assert isinstance(swap, SwapLedger)
    assert set(decode_ledger(swap.ledger).claims) == set(lost)


def test_a_graceful_deletion_keeps_the_claim_to_the_end() -> None:
    """Being deleted proves nothing; the final phase does, which the kubelet writes when the containers are terminated."""
    world, replica = bound("p")
    world.set_status("p", "Running", "running")
    world.delete("p", grace_period_seconds=600)
    replica.reconcile()
    assert len(world.claims()) == 2
    world.set_status("p", "Failed", "terminated")
    replica.reconcile()
    assert world.claims() == {}


def test_a_crash_is_no_proof_even_when_the_pod_is_deleted() -> None:
    """The container may have started again, and nobody has said so yet."""
    world, replica = bound("p")
    world.set_status("p", "Running", "terminated")
    world.delete("p", grace_period_seconds=600)
    replica.reconcile()
    assert len(world.claims()) == 2
    world.delete("p", grace_period_seconds=0)
    replica.reconcile()
    assert len(world.claims()) == 2


def test_a_crashing_container_keeps_its_gpus() -> None:
    """It is terminated until it starts again."""
    world, replica = bound("p")
    world.set_status("p", "Running", "terminated")
    replica.reconcile()
    assert len(world.claims()) == 2


def test_a_pod_deleted_by_force_waits_for_a_later_report() -> None:
    """Its container may go on; a report that may be from before does not count, nor one that still shows it."""
    world, replica = bound("p")
    held = dict.fromkeys(world.claims(), "p")
    observe(world, held)
    world.set_status("p", "Running", "running")
    world.delete("p", grace_period_seconds=0)
    replica.reconcile()
    world.report("n1", 2)
    replica.reconcile()
    assert len(world.claims()) == 2
    observe(world, {})
    replica.reconcile()
    assert world.claims() == {}


def test_a_pod_deleted_by_force_before_it_was_ever_seen_running_waits_for_two_reports() -> None:
    """The first one may be of a look before the pod started, and have been under way for long."""
    world, replica = bound("p")
    world.delete("p", grace_period_seconds=0)
    replica.reconcile()
    world.report("n1", 1)
    replica.reconcile()
    assert len(world.claims()) == 2
    world.report("n1", 2)
    replica.reconcile()
    assert world.claims() == {}


def test_a_pod_deleted_by_force_keeps_its_gpus_while_no_agent_reports() -> None:
    """Hours prove nothing: its containers may run on."""
    world, replica = bound("p")
    world.delete("p", grace_period_seconds=0)
    replica.reconcile(rounds=10, seconds=3600)
    assert len(world.claims()) == 2
    assert replica.state.views["n1"].shape.free == 0


def test_a_look_that_is_later_than_the_question_is_proof_enough() -> None:
    """One report, which names a version of the node that was written when the pod was known to be gone."""
    world, replica = bound("p")
    world.delete("p", grace_period_seconds=0)
    replica.reconcile(rounds=1)
    answer(world, 0)
    replica.reconcile()
    assert len(world.claims()) == 2
    answer(world, 1)
    replica.reconcile()
    assert world.claims() == {}


def test_a_look_that_still_shows_the_pod_is_an_answer_too() -> None:
    """Its GPUs are free once a report, be it the next one, shows them free."""
    world, replica = bound("p")
    held = dict.fromkeys(world.claims(), "p")
    world.delete("p", grace_period_seconds=0)
    replica.reconcile(rounds=1)
    answer(world, 1, held)
    replica.reconcile()
    assert len(world.claims()) == 2
    answer(world, 2)
    replica.reconcile()
    assert world.claims() == {}


def test_an_agent_is_asked_until_the_question_stands_on_its_node() -> None:
    """A request that is lost is sent again after some seconds, one that arrived is not."""
    world, replica = bound("p")
    world.delete("p", grace_period_seconds=0)
    for task in due(replica):
        drive(release(replica.state, task), lose_request(world, AskForLook))
    replica.seconds += 1.0
    assert due(replica) == []
    replica.seconds += 5.0
    for task in due(replica):
        drive(release(replica.state, task), world.execute)
    assert isinstance(world.intents[-1], AskForLook)
    world.intents.clear()
    replica.reconcile()
    assert world.intents == []


def test_an_agent_that_counts_anew_is_waited_for_anew() -> None:
    """Its numbers say nothing beside those of the one before."""
    world, replica = bound("p")
    world.report("n1", 50)
    world.delete("p", grace_period_seconds=0)
    replica.reconcile()
    reports(world, replica, 1, 2)
    assert len(world.claims()) == 2
    reports(world, replica, 3)
    assert world.claims() == {}


def test_an_agent_that_does_not_observe_containers_decides_by_its_next_write() -> None:
    """Nothing better will ever be told; without it the GPUs would be lost with every restart of ours."""
    world, replica = bound("p")
    world.annotate_node("n1", observed=None)
    world.report("n1", 1)
    world.delete("p", grace_period_seconds=0)
    replica.reconcile()
    assert len(world.claims()) == 2
    world.report("n1", 2)
    replica.reconcile()
    assert world.claims() == {}


def test_an_observation_that_vanishes_proves_nothing() -> None:
    """Only the agent's own count of writes says that it has looked."""
    world, replica = bound("p")
    world.delete("p", grace_period_seconds=0)
    replica.reconcile()
    world.annotate_node("n1", observed=None)
    replica.reconcile()
    assert len(world.claims()) == 2


def test_absence_from_the_cache_is_looked_into() -> None:
    """An extender that starts after the deletion has no last status: it asks, and then waits for the agent."""
    world, _ = bound("p")
    world.set_status("p", "Running", "terminated")
    world.delete("p", grace_period_seconds=0)
    replica = Replica(world)
    world.intents.clear()
    replica.reconcile()
    assert [type(intent).__name__ for intent in world.intents] == ["GetPodVersion", "GetNode", "AskForLook"]
    assert len(world.claims()) == 2
    reports(world, replica, 1, 2)
    assert world.claims() == {}


def test_absence_from_a_list_is_no_proof() -> None:
    """The pod is there all the same; the list came from a server that was behind."""
    world, replica = bound("p")
    replica.state.pods.replaced([])
    for task in due(replica):
        drive(release(replica.state, task), world.execute)
    replica.seconds += 100
    assert due(replica) != []
    replica.reconcile()
    assert len(world.claims()) == 2


def test_a_namesake_proves_that_the_pod_is_gone() -> None:
    """It has another UID; the old one's containers are still the agent's to report."""
    world, _ = bound("p")
    world.delete("p", grace_period_seconds=0)
    world.add_pod("p")
    replica = Replica(world)
    replica.reconcile()
    reports(world, replica, 1, 2)
    assert world.claims() == {}


def test_a_node_made_anew_owes_nothing_to_pods_that_are_gone() -> None:
    """Its UID is another one than the ledger's."""
    world, _ = bound("p")
    ledger = world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER]
    world.delete("p", grace_period_seconds=0)
    world.store.delete(NODES, "", "n1")
    world.add_node("n1")
    world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: ledger}}})
    Replica(world).reconcile()
    assert world.claims() == {}


def test_a_pod_that_was_never_bound_needs_no_report() -> None:
    """The DELETED event is its last word."""
    world, replica = orphaned()
    world.delete("p")
    replica.reconcile(rounds=1)
    assert world.claims() == {}


def test_a_claim_on_another_node_than_the_pods_is_void() -> None:
    """A pod is bound once."""
    world = World("n1", "n2")
    world.add_pod("p")
    drive(Replica(world).start_bind("p", "n1"), lose_request(world, BindPod))
    assert isinstance(Replica(world).bind("p", "n2"), Bound)
    Replica(world).reconcile(rounds=1)
    assert (world.claims("n1"), len(world.claims("n2"))) == ({}, 2)
