"""A ledger says what the pods of its node hold: it is corrected when the agent knows better."""

from __future__ import annotations

from contextlib import suppress

import pytest

from benchmarks.simulated.double.resources import NODES, PODS
from extender.binding.intents import BindPod, FencePod, Intent, Refused, Reply, SwapLedger, WritePlacement
from extender.binding.outcome import Bound
from extender.binding.repair import repair
from tests.extender.binding.test_protocol import DELIVERIES
from tests.extender.exploration import Choices, explore
from tests.extender.four_gpus import GPUS, bind_around, damage, kinds, observe, owners, world_of
from tests.extender.world import Crash, Replica, World, delay_request, deliver, drive, lose_request
from topology.annotations import keys


class TestAdoption:
    """C18."""

    def test_a_pod_that_bypassed_us_gets_the_claims_that_the_agent_reports(self) -> None:
        """It was bound by somebody else; afterwards its record says what it has, as that of any other pod."""
        world = world_of("p")
        bind_around(world, "stranger", 1)
        replica = Replica(world)
        assert replica.state.views["n1"].shape.hidden == 1
        observe(world, p=(0, 1), stranger=(3,))
        world.intents.clear()
        replica.reconcile(rounds=3, seconds=3.0)
        assert (owners(world), kinds(world)) == ({"p": {0, 1}, "stranger": {3}}, ["SwapLedger", "WritePlacement"])
        assert world.placed("stranger") == {GPUS[3]}
        assert replica.state.views["n1"].shape.hidden == 0

    def test_adoption_fences_an_unbound_owner_first(self) -> None:
        """Its Binding may be under way; it finds other GPUs afterwards."""
        world = world_of()
        world.add_pod("p", 2)
        drive(Replica(world).start_bind("p"), delay_request(world, BindPod))
        (claimed,) = owners(world).values()
        bind_around(world, "stranger", 1)
        observe(world, stranger=(min(claimed),))
        replica = Replica(world)
        world.intents.clear()
        replica.reconcile(rounds=3, seconds=3.0)
        assert kinds(world)[:2] == ["FencePod", "SwapLedger"]
        world.deliver_late()
        assert owners(world) == {"stranger": {min(claimed)}}
        assert isinstance(replica.bind("p"), Bound)

    def test_a_claim_renewed_beside_the_fence_survives(self) -> None:
        """The ledger is replaced only as it was before."""
        world = world_of()
        world.add_pod("p", 2)
        drive(Replica(world).start_bind("p"), lose_request(world, BindPod))
        (claimed,) = owners(world).values()
        bind_around(world, "stranger", 1)
        observe(world, stranger=(min(claimed),))
        slow = Replica(world)
        steps = repair(slow.state, "n1")
        fence = steps.send(world.execute(next(steps)))
        assert isinstance(fence, FencePod)
        reply = world.execute(fence)
        assert isinstance(Replica(world).bind("p"), Bound)
        swap = steps.send(reply)
        assert isinstance(swap, SwapLedger)
        with pytest.raises(StopIteration):
            steps.send(world.execute(swap))
        assert owners(world)["p"].isdisjoint({min(claimed)})


class TestFacts:
    """N9, N10."""

    def correct(self, world: World, *reports: dict[str, tuple[int, ...]]) -> Replica:
        """Follow the cluster while the agent reports, one look after the other."""
        replica = Replica(world)
        replica.reconcile(rounds=1, seconds=3.0)
        world.intents.clear()
        with world.unchecked():
            for held in reports:
                observe(world, **held)
                replica.reconcile(rounds=2, seconds=3.0)
        return replica

    def test_a_claim_follows_the_gpus_that_the_kubelet_gave(self) -> None:
        """N9: one write of the ledger, one of the record; what was planned is free again."""
        world = world_of("p")
        replica = self.correct(world, {"p": (2, 3)})
        assert (owners(world), kinds(world)) == ({"p": {2, 3}}, ["SwapLedger", "WritePlacement"])
        assert world.placed("p") == {GPUS[2], GPUS[3]}
        assert replica.state.views["n1"].shape.free == 0b0011
        world.check()

    def test_a_pod_that_takes_no_others_keeps_its_claims_until_it_runs(self) -> None:
        """Its node holds it back; a ledger that followed would let it start with what it does not want."""
        world = world_of()
        world.add_pod("p", 2, **{keys.DEVICE_MISMATCH: "refuse"})
        assert isinstance(Replica(world).bind("p"), Bound)
        replica = self.correct(world, {"p": (2, 3)})
        assert (owners(world), kinds(world)) == ({"p": {0, 1}}, [])
        assert replica.state.views["n1"].shape.free == 0
        world.set_status("p", "Running", "running")
        with world.unchecked():
            replica.reconcile(rounds=2, seconds=3.0)
        assert owners(world) == {"p": {2, 3}}

    def test_two_pods_that_were_swapped_change_places_in_one_write(self) -> None:
        """N10: no state between has a GPU that nobody has, or two."""
        world = world_of("p", "q")
        self.correct(world, {"p": (2, 3), "q": (0, 1)})
        assert owners(world) == {"p": {2, 3}, "q": {0, 1}}
        assert kinds(world) == ["SwapLedger", "WritePlacement", "WritePlacement"]

    def test_a_cache_that_is_behind_moves_nothing(self) -> None:
        """It still knows a pod, and a report, that are gone; the GPU has been given to one that it never heard of."""
        world = world_of("old")
        behind = Replica(world)
        behind.reconcile(rounds=1, seconds=3.0)
        observe(world, old=(0, 1))
        behind.reconcile(rounds=1, seconds=3.0)
        world.set_status("old", "Succeeded", "terminated")
        world.add_pod("new", 4)
        with world.unchecked():
            assert isinstance(Replica(world).bind("new"), Bound)
            before = world.claims()
            behind.catch_up(NODES)
            drive(repair(behind.state, "n1"), world.execute)
        assert world.claims() == before

    def test_a_bound_owner_is_waited_for(self) -> None:
        """What it has instead is not known before its own containers have started."""
        world = world_of("p", "q")
        replica = self.correct(world, {"p": (2, 3)})
        assert (owners(world), kinds(world)) == ({"p": {0, 1}, "q": {2, 3}}, [])
        assert replica.state.views["n1"].shape.free == 0
        with world.unchecked():
            observe(world, p=(2, 3), q=(0, 1))
            replica.reconcile(rounds=2, seconds=3.0)
        assert owners(world) == {"p": {2, 3}, "q": {0, 1}}

    def test_a_chain_of_pods_waits_for_its_last_one(self) -> None:
        """Each has what the next one was to have, and the last one has not started."""
        world = world_of("p", "q", "r", gpus=1)
        before = owners(world)
        replica = self.correct(world, {"p": tuple(before["q"]), "q": tuple(before["r"])})
        assert (owners(world), kinds(world)) == (before, [])
        assert not replica.state.views["n1"].conflicts

    def test_a_report_that_may_be_about_a_namesake_moves_nothing(self) -> None:
        """N17: the pod before had these GPUs, and was deleted by force; two looks later it must be this one."""
        world = world_of()
        observe(world, p=(2, 3))
        bind_around(world, "p", 2)
        with world.unchecked():
            replica = Replica(world)
            world.delete("p", grace_period_seconds=0)
            world.add_pod("p", 2)
            replica.catch_up()
            assert isinstance(replica.bind("p"), Bound)
            planned = owners(world)
            assert planned == {"p": {0, 1}}
            replica.reconcile(rounds=3, seconds=3.0)
            assert owners(world) == planned
            for _ in range(2):
                observe(world, p=(2, 3))
                replica.reconcile(rounds=2, seconds=3.0)
        assert owners(world) == {"p": {2, 3}}

    def test_a_report_about_a_namesake_that_runs_on_moves_nothing(self) -> None:
        """Deleted by force, its containers alive: however often the agent looks, it sees the name on the GPUs of that one."""
        world = world_of("p")
        replica, before = self.correct(world, {"p": (0, 1)}), world.claims()
        world.delete("p", grace_period_seconds=0)
        world.add_pod("p", 2)
        with world.unchecked():
            assert isinstance(replica.bind("p"), Bound)
            for _ in range(3):
                replica.reconcile(rounds=2, seconds=3.0)
                observe(world, p=(0, 1))
        assert before.items() < world.claims().items()

    @pytest.mark.parametrize("late", [False, True], ids=["it runs", "it begins to run once the agent was asked"])
    def test_a_running_pod_takes_over_the_claims_of_a_namesake_that_is_gone(self, *, late: bool) -> None:
        """It was bound around us, and the kubelet gave it the GPU that the one before had a claim on (seed 4410)."""
        world = self.succeed(runs=not late)
        replica = Replica(world)
        replica.reconcile(rounds=3, seconds=6.0)
        world.set_status("p", "Running", "running")
        for _ in range(3):
            replica.reconcile(rounds=3, seconds=6.0)
            observe(world, p=(0,))
        replica.reconcile(rounds=3, seconds=6.0)
        assert owners(world) == {"p": {0}}
        assert replica.state.views["n1"].shape.free == 0b1110

    @pytest.mark.parametrize("rebuild", [False, True], ids=["a whole ledger", "a lost ledger"])
    @pytest.mark.parametrize("how", ["it does not run yet", "both run", "it has ended unheard"])
    def test_a_namesake_that_may_run_on_keeps_its_claims(self, how: str, *, rebuild: bool) -> None:
        """What is seen under their name may be its own."""
        world = self.succeed(runs=how != "it does not run yet")
        replica, before = Replica(world), world.claims()
        replica.reconcile(rounds=4, seconds=6.0)
        if how == "it has ended unheard":
            world.delete("p", grace_period_seconds=0)
        for _ in range(3):
            observe(world, p=(0, 1) if how == "both run" else (0,))
        with world.unchecked():
            if rebuild:
                damage(world, "wiped")
            replica.catch_up(NODES)
            drive(repair(replica.state, "n1"), world.execute)
            replica.reconcile(rounds=1)
        assert before.items() <= world.claims().items()

    def succeed(self, *, runs: bool) -> World:
        """Have a pod claim a GPU and go, and another one of its name bound to its node around us."""
        world = world_of()
        world.add_pod("p", 1)
        drive(Replica(world).start_bind("p"), lose_request(world, BindPod))
        world.delete("p", grace_period_seconds=0)
        bind_around(world, "p", 1)
        if runs:
            world.set_status("p", "Running", "running")
        observe(world, p=(0,))
        return world

    def test_a_report_about_a_pod_without_a_namesake_is_believed_at_once(self) -> None:
        """N9: it may overtake the news that the pod is bound."""
        world = world_of()
        replica = Replica(world)
        world.add_pod("p", 2)
        replica.catch_up()
        with world.unchecked():
            assert isinstance(replica.bind("p"), Bound)
            observe(world, p=(2, 3))
            replica.reconcile(rounds=3, seconds=3.0)
        assert (owners(world), world.placed("p")) == ({"p": {2, 3}}, frozenset({GPUS[2], GPUS[3]}))

    @pytest.mark.slow
    @pytest.mark.parametrize("follow", [True, False], ids=["watching", "frozen cache"])
    def test_any_single_fault_of_a_correction(self, *, follow: bool) -> None:
        """A bind is under way to the very GPUs that the kubelet gave to another pod; whatever gets lost, it comes too late."""

        def run(choices: Choices) -> None:
            world = world_of("p")
            world.add_pod("q")
            drive(Replica(world).start_bind("q"), delay_request(world, BindPod))
            replica = Replica(world)
            replica.reconcile(rounds=1, seconds=3.0)

            def execute(intent: Intent) -> Reply:
                if follow:
                    replica.catch_up()
                return deliver(world, choices.choose(DELIVERIES), intent)

            with world.unchecked():
                for _ in range(3):
                    observe(world, p=(2, 3))
                    replica.catch_up()
                with suppress(Crash):
                    drive(repair(replica.state, "n1"), execute)
                heir = Replica(world)
                for _ in range(3):
                    observe(world, p=(2, 3))
                    heir.reconcile(rounds=2, seconds=3.0)
                world.deliver_late()
            assert (owners(world)["p"], world.placed("p")) == ({2, 3}, frozenset(GPUS[2:]))
            assert isinstance(heir.bind("q"), Bound)
            assert owners(world) == {"p": {2, 3}, "q": {0, 1}}
            world.check()

        assert explore(run, faults=1) > 10

    def test_half_a_report_moves_nothing(self) -> None:
        """A container has started, the other one has not."""
        world = world_of("p")
        self.correct(world, {"p": (2,)})
        assert (owners(world), kinds(world)) == ({"p": {0, 1}}, [])

    def test_a_report_of_what_was_planned_costs_nothing(self) -> None:
        """That is how it should be."""
        world = world_of("p", "q")
        self.correct(world, {"p": (0, 1), "q": (2, 3)}, {"p": (0, 1)})
        assert kinds(world) == []

    def test_a_record_is_corrected_after_a_crash_between_the_two_writes(self) -> None:
        """The ledger says it, the agent says it, the record is all that is left to do."""
        world = world_of("p")
        replica = Replica(world)
        replica.reconcile(rounds=1)
        with world.unchecked():
            observe(world, p=(2, 3))
            replica.catch_up()
            drive(repair(replica.state, "n1"), lose_request(world, WritePlacement))
            assert world.placed("p") == {GPUS[0], GPUS[1]}
            heir = Replica(world)
            for _ in range(3):
                observe(world, p=(2, 3))
                heir.reconcile(rounds=2, seconds=3.0)
        assert world.placed("p") == {GPUS[2], GPUS[3]}

    def test_a_record_that_is_refused_for_good_is_tried_once_a_minute(self) -> None:
        """Somebody else's webhook says no; the ledger is right, and other repairs are not put off."""
        world = world_of("p")
        replica = Replica(world)
        replica.reconcile(rounds=1, seconds=3.0)
        world.intents.clear()

        def execute(intent: Intent) -> Reply:
            reply = world.execute(intent) if not isinstance(intent, WritePlacement) else Refused(403, "no")
            tried.append(intent)
            return reply

        tried: list[Intent] = []
        with world.unchecked():
            observe(world, p=(2, 3))
            replica.reconcile(rounds=15, seconds=3.0, execute=execute)
            assert sum(isinstance(intent, WritePlacement) for intent in tried) == 1
            observe(world, p=(0, 1))
            replica.reconcile(rounds=2, seconds=3.0, execute=execute)
            assert owners(world) == {"p": {0, 1}}


class TestConflict:
    """C16."""

    def test_a_gpu_with_two_live_pods_is_nobodys_until_one_is_gone(self) -> None:
        """A forged record; its pod's end lifts the quarantine."""
        world = world_of("p")
        record = world.store.get(PODS, "default", "p")["metadata"]["annotations"][keys.PLACEMENT]
        world.add_pod("forger", 2)
        binding = {"metadata": {"name": "forger", "annotations": {keys.PLACEMENT: record}}, "target": {"name": "n1"}}
        with world.unchecked():
            world.store.bind("default", "forger", binding)
            replica = Replica(world)
            replica.reconcile(rounds=3, seconds=3.0)
            view = replica.state.views["n1"]
            assert {GPUS.index(gpu) for gpu in view.conflicts} == {0, 1}
            assert {pod.key[1] for pods in view.conflicts.values() for pod in pods} == {"p", "forger"}
            assert (view.shape.free, owners(world)) == (0b1100, {"p": {0, 1}})
            world.set_status("forger", "Failed", "terminated")
            replica.reconcile(rounds=3, seconds=3.0)
        assert not replica.state.views["n1"].conflicts
        world.check()


def test_nothing_is_repaired_before_both_watches_had_time_to_agree() -> None:
    """The pod is heard of before the claims that were written first."""
    world = world_of()
    world.add_pod("p", 2)
    replica = Replica(world)
    assert isinstance(Replica(world).bind("p"), Bound)
    replica.catch_up(PODS)
    assert replica.state.conditions.amiss == {"n1"}
    assert replica.repairs.due(replica.state, 0.0) == []
    replica.catch_up()
    assert not replica.state.conditions.amiss
