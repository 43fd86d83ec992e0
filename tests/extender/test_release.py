"""Claims are taken back with proof, and only with proof."""

from __future__ import annotations

from typing import Literal

import pytest

from benchmarks.double.resources import NODES, PODS
from extender.binding.intents import AskForLook, BindPod, Conflict, FencePod, Intent, NoAnswer, Reply, SwapLedger
from extender.binding.outcome import Bound
from extender.binding.release import Attention, Task, release
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
from topology.records import Holder, Observed, encode_observed


def bound(*pods: str) -> tuple[World, Replica]:
    """Return a world in which these pods are bound, one per node, and an extender that knows it."""
    world = World(*(f"n{number}" for number in range(1, len(pods) + 1)))
    for number, name in enumerate(pods, start=1):
        world.add_pod(name)
        assert isinstance(Replica(world).bind(name, f"n{number}"), Bound)
    return world, Replica(world)


def orphaned() -> tuple[World, Replica]:
    """Return a world with the claim of a bind that died, and another extender."""
    world = World()
    world.add_pod("p")
    drive(Replica(world).start_bind("p"), lose_request(world, BindPod))
    return world, Replica(world)


def observe(world: World, held: dict[str, str]) -> None:
    """Let the node's agent report who holds what."""
    observed = Observed({gpu: Holder("default", name, "main") for gpu, name in held.items()})
    world.annotate_node("n1", observed=encode_observed(observed))


def answer(world: World, later: int, held: dict[str, str] | None = None) -> None:
    """Let the node's agent report from a look that knew the version that is asked about, or so many later ones."""
    asked = world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LOOK]
    gpus = {gpu: Holder("default", name, "main") for gpu, name in (held or {}).items()}
    observed = Observed(gpus, node_version=str(int(asked) + later))
    world.annotate_node("n1", observed=encode_observed(observed))


def reports(world: World, replica: Replica, *numbers: int) -> None:
    """Let the node's agent write again and again, and the extender take it in each time."""
    for number in numbers:
        world.report("n1", number)
        replica.reconcile()


def due(replica: Replica) -> list[Task]:
    replica.catch_up()
    return replica.attention.due(replica.state, replica.seconds)


class TestProof:
    """R1 and R2."""

    def test_an_idle_cluster_needs_nothing(self) -> None:
        """No task, no request."""
        world, replica = bound("p")
        world.intents.clear()
        replica.reconcile()
        assert world.intents == []

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_a_pod_that_ended_gives_its_gpus_back(self, phase: str) -> None:
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
    def test_a_final_phase_without_the_end_of_containers_waits_for_a_look(
        self, state: Literal["running"] | None
    ) -> None:
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

    def test_a_graceful_deletion_keeps_the_claim_to_the_end(self) -> None:
        """Being deleted proves nothing; the final phase does, which the kubelet writes when the containers are terminated."""
        world, replica = bound("p")
        world.set_status("p", "Running", "running")
        world.delete("p", grace_period_seconds=600)
        replica.reconcile()
        assert len(world.claims()) == 2
        world.set_status("p", "Failed", "terminated")
        replica.reconcile()
        assert world.claims() == {}

    def test_a_crash_is_no_proof_even_when_the_pod_is_deleted(self) -> None:
        """The container may have started again, and nobody has said so yet."""
        world, replica = bound("p")
        world.set_status("p", "Running", "terminated")
        world.delete("p", grace_period_seconds=600)
        replica.reconcile()
        assert len(world.claims()) == 2
        world.delete("p", grace_period_seconds=0)
        replica.reconcile()
        assert len(world.claims()) == 2

    def test_a_crashing_container_keeps_its_gpus(self) -> None:
        """It is terminated until it starts again."""
        world, replica = bound("p")
        world.set_status("p", "Running", "terminated")
        replica.reconcile()
        assert len(world.claims()) == 2

    def test_a_pod_deleted_by_force_waits_for_a_later_report(self) -> None:
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

    def test_a_pod_deleted_by_force_before_it_was_ever_seen_running_waits_for_two_reports(self) -> None:
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

    def test_a_look_that_is_later_than_the_question_is_proof_enough(self) -> None:
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

    def test_a_look_that_still_shows_the_pod_is_an_answer_too(self) -> None:
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

    def test_an_agent_is_asked_until_the_question_stands_on_its_node(self) -> None:
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

    def test_an_agent_that_counts_anew_is_waited_for_anew(self) -> None:
        """Its numbers say nothing beside those of the one before."""
        world, replica = bound("p")
        world.report("n1", 50)
        world.delete("p", grace_period_seconds=0)
        replica.reconcile()
        reports(world, replica, 1, 2)
        assert len(world.claims()) == 2
        reports(world, replica, 3)
        assert world.claims() == {}

    def test_an_agent_that_does_not_observe_containers_decides_by_its_next_write(self) -> None:
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

    def test_an_observation_that_vanishes_proves_nothing(self) -> None:
        """Only the agent's own count of writes says that it has looked."""
        world, replica = bound("p")
        world.delete("p", grace_period_seconds=0)
        replica.reconcile()
        world.annotate_node("n1", observed=None)
        replica.reconcile()
        assert len(world.claims()) == 2

    def test_absence_from_the_cache_is_looked_into(self) -> None:
        """An extender that starts after the deletion has no last status: it asks, and then waits for the agent."""
        world, _ = bound("p")
        world.set_status("p", "Running", "terminated")
        world.delete("p", grace_period_seconds=0)
        replica = Replica(world)
        world.intents.clear()
        replica.reconcile()
        assert [type(intent).__name__ for intent in world.intents] == ["GetPod", "GetNode", "AskForLook"]
        assert len(world.claims()) == 2
        reports(world, replica, 1, 2)
        assert world.claims() == {}

    def test_absence_from_a_list_is_no_proof(self) -> None:
        """The pod is there all the same; the list came from a server that was behind."""
        world, replica = bound("p")
        replica.state.pods.replaced([])
        for task in due(replica):
            drive(release(replica.state, task), world.execute)
        replica.seconds += 100
        assert due(replica) != []
        replica.reconcile()
        assert len(world.claims()) == 2

    def test_a_namesake_proves_that_the_pod_is_gone(self) -> None:
        """It has another UID; the old one's containers are still the agent's to report."""
        world, _ = bound("p")
        world.delete("p", grace_period_seconds=0)
        world.add_pod("p")
        replica = Replica(world)
        replica.reconcile()
        reports(world, replica, 1, 2)
        assert world.claims() == {}

    def test_a_node_made_anew_owes_nothing_to_pods_that_are_gone(self) -> None:
        """Its UID is another one than the ledger's."""
        world, _ = bound("p")
        ledger = world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER]
        world.delete("p", grace_period_seconds=0)
        world.store.delete(NODES, "", "n1")
        world.add_node("n1")
        world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: ledger}}})
        Replica(world).reconcile()
        assert world.claims() == {}

    def test_a_pod_that_was_never_bound_needs_no_report(self) -> None:
        """The DELETED event is its last word."""
        world, replica = orphaned()
        world.delete("p")
        replica.reconcile(rounds=1)
        assert world.claims() == {}

    def test_a_claim_on_another_node_than_the_pods_is_void(self) -> None:
        """A pod is bound once."""
        world = World("n1", "n2")
        world.add_pod("p")
        drive(Replica(world).start_bind("p", "n1"), lose_request(world, BindPod))
        assert isinstance(Replica(world).bind("p", "n2"), Bound)
        Replica(world).reconcile(rounds=1)
        assert (world.claims("n1"), len(world.claims("n2"))) == ({}, 2)


class TestOrphans:
    """R3: an unbound pod's claim is fenced, and only then dropped."""

    def test_waits_before_it_fences(self) -> None:
        """Another process may be in the middle of the bind."""
        _, replica = orphaned()
        assert due(replica) == []
        replica.seconds = 59.9
        assert due(replica) == []
        replica.seconds = 60.0
        uid = replica.world.store.get(PODS, "default", "p")["metadata"]["uid"]
        assert due(replica) == [Task("n1", orphans=frozenset({uid}))]

    def test_a_renewed_claim_waits_anew(self) -> None:
        """The time counts from the last change."""
        world, replica = orphaned()
        due(replica)
        replica.seconds = 59.0
        world.touch("p")
        drive(Replica(world).start_bind("p"), lose_request(world, BindPod))
        due(replica)
        replica.seconds = 61.0
        assert due(replica) == []

    def test_fences_then_drops(self) -> None:
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

    def test_a_claim_renewed_after_the_fence_survives(self) -> None:
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
    def test_without_the_fence_nothing_is_dropped(self, reply: Reply) -> None:
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

    def test_a_pod_bound_at_the_last_moment_keeps_its_claim(self) -> None:
        """The fence fails, since the Binding has moved the pod."""
        world, replica = orphaned()
        due(replica)
        replica.seconds = 60.0
        (task,) = due(replica)
        Replica(world).bind("p")
        assert drive(release(replica.state, task), world.execute) == ()
        assert world.placed("p") == set(world.claims())


class TestFaults:
    """Lost replies and rivals."""

    def test_a_lost_reply_is_harmless(self) -> None:
        """The release is idempotent."""
        world, replica = bound("p")
        world.set_status("p", "Succeeded", "terminated")
        (task,) = due(replica)
        assert drive(release(replica.state, task), lose_reply(world, SwapLedger)) == ()
        assert (world.claims(), due(replica)) == ({}, [])

    def test_a_rival_that_binds_first_wins(self) -> None:
        """Its claim on the same GPUs is not touched."""
        world, replica = bound("p")
        world.set_status("p", "Succeeded", "terminated")
        world.add_pod("q")
        (task,) = due(replica)
        rival = Replica(world)
        drive(release(replica.state, task), meddle_before(world, SwapLedger, lambda: rival.bind("q")))
        assert world.placed("q") == set(world.claims())

    @pytest.mark.parametrize("text", ['{"v":9,"claims":[]}', '{"v":2}'])
    def test_a_ledger_of_a_newer_version_is_not_touched(self, text: str) -> None:
        """I4, U1: whoever wrote it knows more than we do."""
        world, replica = bound("p")
        with world.unchecked():
            world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: text}}})
            world.set_status("p", "Succeeded", "terminated")
            world.intents.clear()
            replica.reconcile()
        assert world.intents == []

    def test_an_orphan_that_vanished_in_the_meantime_is_not_fenced(self) -> None:
        """There is nobody to fence any more."""
        world, replica = orphaned()
        due(replica)
        replica.seconds = 60.0
        (task,) = due(replica)
        world.delete("p")
        replica.catch_up()
        drive(release(replica.state, task), world.execute)
        assert FencePod not in map(type, world.intents)

    def test_a_node_that_vanished_in_the_meantime_needs_nothing(self) -> None:
        """Its ledger went with it."""
        world, replica = bound("p")
        world.set_status("p", "Succeeded", "terminated")
        (task,) = due(replica)
        replica.state.nodes.replaced([])
        assert drive(release(replica.state, task), world.execute) == ()


def test_attention_forgets_what_is_settled() -> None:
    """Nothing is remembered of claims that are gone."""
    world, replica = orphaned()
    attention = Attention()
    attention.due(replica.state, 0.0)
    Replica(world).bind("p")
    replica.catch_up()
    assert attention.due(replica.state, 100.0) == []
    assert attention._since == {}


def test_many_tasks_name_their_nodes_in_order() -> None:
    """Whoever runs them sees them in the same order each time."""
    world, replica = bound("p", "q")
    for name in ("q", "p"):
        world.set_status(name, "Succeeded", "terminated")
    assert [task.node for task in due(replica)] == ["n1", "n2"]
