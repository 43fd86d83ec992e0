"""A ledger that is lost is written anew, as is a node's first one: from what is bound, once nobody else can be."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.simulated.double.resources import NODES, PODS
from benchmarks.simulated.double.rules import MAX_ANNOTATION_BYTES
from extender.binding.intents import BindPod, Conflict, FencePod, ListPods, Refused, SwapLedger, fence
from extender.binding.outcome import Bound, Failure, NotBound
from extender.binding.repair import repair
from extender.cluster.objects.kinds import Node, ObjectMeta, Pod
from tests.extender.binding.test_protocol import DELIVERIES
from tests.extender.binds import failure_of
from tests.extender.exploration import Choices, explore
from tests.extender.four_gpus import MACHINE, damage, kinds, observe, owners, world_of
from tests.extender.world import Crash, Replica, World, answer_once, delay_request, deliver, drive, meddle_before
from topology.annotations import keys
from topology.annotations.records import Ledger, decode_ledger

GARBLED = {"metadata": {"annotations": {keys.LEDGER: "{"}}}


def touch_q(world: World) -> Callable[[], None]:
    """Return what lets a third party write to q."""
    return lambda: world.touch("q")


def beat(world: World, replica: Replica) -> None:
    """Let somebody write to n1 what is none of our business, and the replica hear of it."""
    mark = str(world.store.resource_version)
    world.patch(NODES, "n1", {"metadata": {"annotations": {"example.com/beat": mark}}})
    replica.catch_up(NODES)


def ledger_of(world: World) -> Ledger:
    """Return the ledger of n1."""
    return decode_ledger(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER])


def leave_gap(world: World, replica: Replica, gap: str) -> None:
    """Let the replica miss something of what happens to nodes, or n3 leave with a ledger and come back without."""
    found = {item["metadata"]["name"]: msgspec.convert(item, Node) for item in world.store.list(NODES).items}
    match gap:
        case "the node leaves and comes back":
            annotations = {keys.LEDGER: "{"}
            before = replace(found["n3"], metadata=replace(found["n3"].metadata, uid="before", annotations=annotations))
            replica.state.nodes.deleted(found["n3"])
            replica.state.nodes.changed(before)
            replica.state.nodes.deleted(before)
            replica.state.nodes.changed(found["n3"])
        case "nodes are listed anew":
            replica.state.nodes.replaced([found["n1"], found["n2"], found["n3"]])
        case _:
            replica.state.nodes.learn(found["n3"])


class TestRebuild:
    """C15."""

    @pytest.mark.parametrize("how", ["wiped", "truncated", "edited"])
    @pytest.mark.parametrize("fresh", [True, False], ids=["an extender that knows nothing", "one that saw it"])
    def test_a_damaged_ledger_is_rebuilt_from_what_is_bound(self, how: str, *, fresh: bool) -> None:
        """Nothing is lost, and one write does it."""
        world = world_of("p", "q")
        before, witness = world.claims(), Replica(world)
        with world.unchecked():
            damage(world, how)
            replica = Replica(world) if fresh else witness
            world.intents.clear()
            replica.reconcile(rounds=3)
        assert (world.claims(), kinds(world)) == (before, ["SwapLedger"])
        assert replica.state.views["n1"].shape.closed is None

    def test_a_bound_pod_comes_after_a_claim_of_one_that_is_gone(self) -> None:
        """Another replica has rebuilt the ledger without that claim, and given the GPUs away; ours remembers the old ledger."""
        world = world_of("old", gpus=4)
        witness = Replica(world)
        with world.unchecked():
            world.patch(NODES, "n1", GARBLED)
            witness.catch_up()
            world.delete("old", grace_period_seconds=0)
            observe(world)
            other = Replica(world)
            other.reconcile(rounds=3)
            world.add_pod("new", 4)
            assert isinstance(other.bind("new"), Bound)
            witness.reconcile(rounds=3)
        assert owners(world) == {"new": {0, 1, 2, 3}}

    def test_what_was_claimed_since_comes_before_what_is_remembered(self) -> None:
        """Its pod was deleted by force before the one who remembers has heard of it, and its containers run (seed 2698)."""
        world = world_of("old", gpus=4)
        witness = Replica(world)
        with world.unchecked():
            world.patch(NODES, "n1", GARBLED)
            world.delete("old", grace_period_seconds=0)
            observe(world)
            other = Replica(world)
            other.reconcile(rounds=3)
            world.add_pod("new", 4)
            assert isinstance(other.bind("new"), Bound)
            observe(world, new=(0, 1, 2, 3))
            before = world.claims()
            world.delete("new", grace_period_seconds=0)
            witness.reconcile(rounds=6)
        assert world.claims() == before

    @pytest.mark.parametrize("gone", [True, False], ids=["nobody is bound there", "a pod is bound there"])
    def test_generations_go_on(self, *, gone: bool) -> None:
        """A ledger that begins anew is later than any that has been before, also for those who remember more than we do."""
        world = world_of("p")
        if gone:
            world.delete("p", grace_period_seconds=0)
        before = ledger_of(world).generation
        with world.unchecked():
            damage(world, "wiped")
            Replica(world).reconcile(rounds=2)
        assert ledger_of(world).generation > before

    def test_a_binding_under_way_loses_its_claim_only_after_a_fence(self) -> None:
        """Nobody remembers the claim; its pod is fenced with all others that wait, and the Binding comes too late."""
        world = world_of()
        world.add_pod("p", 4)
        drive(Replica(world).start_bind("p"), delay_request(world, BindPod))
        damage(world, "wiped")
        observe(world)
        world.add_pod("q", 4)
        with world.unchecked():
            world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: "{"}}})
        replica = Replica(world)
        replica.reconcile(rounds=2)
        assert isinstance(replica.bind("q"), Bound)
        world.deliver_late()
        assert (world.placed("p"), owners(world)) == (frozenset(), {"q": {0, 1, 2, 3}})

    @pytest.mark.parametrize("hears", [True, False], ids=["hears of it all at once", "hears nothing"])
    def test_a_ledger_that_breaks_twice_needs_fences_twice(self, *, hears: bool) -> None:
        """In between it was whole, and a Binding rests on it that no fence has met."""
        world = world_of()
        for name in ("p", "q"):
            world.add_pod(name, 4)
        with world.unchecked():
            world.patch(NODES, "n1", GARBLED)
            slow = Replica(world)
            steps = repair(slow.state, "n1")
            intent = next(steps)
            while not isinstance(intent, SwapLedger):
                intent = steps.send(world.execute(intent))
            Replica(world).reconcile(rounds=1)
            drive(Replica(world).start_bind("p"), delay_request(world, BindPod))
            world.patch(NODES, "n1", GARBLED)
            if hears:
                slow.reconcile(rounds=3)
            else:
                with suppress(StopIteration):
                    steps.send(world.execute(intent))
                Replica(world).reconcile(rounds=2)
            assert isinstance(Replica(world).bind("q"), Bound)
            world.deliver_late()
        assert owners(world) == {"q": {0, 1, 2, 3}}
        assert world.placed("p") == frozenset()

    def test_each_waiting_pod_is_fenced_once_for_all_nodes_that_broke(self) -> None:
        """What is prepared after the fence rests on ledgers that are whole."""
        world = world_of("p")
        world.add_pod("r")
        assert isinstance(Replica(world).bind("r", "n2"), Bound)
        world.add_pod("waiting")
        with world.unchecked():
            for node in ("n1", "n2"):
                world.patch(NODES, node, {"metadata": {"annotations": {keys.LEDGER: "{"}}})
            world.intents.clear()
            Replica(world).reconcile(rounds=3)
        assert kinds(world) == ["FencePod", "SwapLedger", "SwapLedger"]

    def test_a_pod_that_nobody_here_has_heard_of_is_fenced_too(self) -> None:
        """Our watch is behind: the live list shows the one whose Binding is under way."""
        world = world_of()
        world.add_pod("q", 4)
        replica = Replica(world)
        world.add_pod("p", 4)
        drive(Replica(world).start_bind("p"), delay_request(world, BindPod))
        damage(world, "wiped")
        replica.state.nodes.replaced([msgspec.convert(world.store.get(NODES, "", "n1"), Node)])
        drive(repair(replica.state, "n1"), world.execute)
        assert isinstance(replica.bind("q"), Bound)
        world.deliver_late()
        assert owners(world) == {"q": {0, 1, 2, 3}}

    def test_a_pod_that_was_bound_unheard_is_waited_for(self) -> None:
        """Our watch is behind: the live list shows a pod on the node, and the ledger waits until the watch tells of it."""
        world = world_of()
        replica = Replica(world)
        world.add_pod("p")
        assert isinstance(Replica(world).bind("p"), Bound)
        with world.unchecked():
            damage(world, "wiped")
            replica.catch_up(NODES)
            drive(repair(replica.state, "n1"), world.execute)
            assert world.claims() == {}
            replica.reconcile(rounds=1)
        assert owners(world) == {"p": {0, 1}}

    def test_a_pod_that_is_gone_gets_back_what_the_agent_sees_it_hold(self) -> None:
        """A stranger took one of its claims away before it was deleted by force; its containers run on."""
        world = world_of("p")
        before = world.claims()
        observe(world, p=(0, 1))
        with world.unchecked():
            damage(world, "edited")
            replica = Replica(world)
            world.delete("p", grace_period_seconds=0)
            damage(world, "wiped")
            replica.reconcile(rounds=1)
        assert world.claims() == before

    def test_a_pod_that_changes_between_list_and_fence_needs_none(self) -> None:
        """What it was claimed for cannot be bound any more; only a conflict that is none is no proof."""
        world = world_of("p")
        world.add_pod("q")
        with world.unchecked():
            damage(world, "wiped")
            replica = Replica(world)
            for reply in (Conflict("not so"), None):
                execute = (
                    answer_once(world, FencePod, reply) if reply else meddle_before(world, FencePod, touch_q(world))
                )
                drive(repair(replica.state, "n1"), execute)
                assert bool(world.claims()) is (reply is None)
        assert owners(world) == {"p": {0, 1}}

    def test_pods_that_no_binding_can_reach_are_left_alone(self) -> None:
        """They are gated, have ended, or ask for no GPU."""
        world = world_of("p")
        world.add_gated_pod("gated", "queue")
        for name, gpus in (("ended", 2), ("plain", 0)):
            world.add_pod(name, gpus)
        world.set_status("ended", "Failed")
        with world.unchecked():
            damage(world, "wiped")
            world.intents.clear()
            Replica(world).reconcile(rounds=2)
        assert kinds(world) == ["SwapLedger"]

    def test_a_pod_full_of_annotations_keeps_no_node_closed(self) -> None:
        """The API server refuses to fence it, and nobody sends a Binding for it; whoever may create pods could do that."""
        world = world_of("p")
        world.add_pod("full")
        world.patch(PODS, "full", {"metadata": {"annotations": {"a": "x" * (MAX_ANNOTATION_BYTES - 1)}}})
        with world.unchecked():
            damage(world, "wiped")
            replica = Replica(world)
            refused = world.execute(fence(msgspec.convert(world.store.get(PODS, "default", "full"), Pod)))
            replica.reconcile(rounds=2)
            replica.catch_up()
        outcome = replica.bind("full")
        assert isinstance(refused, Refused)
        assert replica.state.views["n1"].shape.closed is None
        assert isinstance(outcome, NotBound)
        assert outcome.failure is Failure.BAD_REQUEST

    def test_a_node_that_changes_all_the_time_is_opened_nevertheless(self) -> None:
        """Fencing many pods takes longer than a node stays the same; what is lost was lost once."""
        world = world_of("p")
        for name in ("q", "r", "s"):
            world.add_pod(name)
        with world.unchecked():
            replica = Replica(world)
            damage(world, "wiped")
            replica.catch_up()
            world.intents.clear()
            drive(repair(replica.state, "n1"), meddle_before(world, FencePod, lambda: beat(world, replica)))
            replica.reconcile(rounds=1)
        assert kinds(world) == [*["FencePod"] * 3, "SwapLedger"]

    @pytest.mark.slow
    @pytest.mark.parametrize("how", ["wiped", "truncated", "edited"])
    def test_any_single_fault_of_a_rebuild(self, how: str) -> None:
        """Requests and replies get lost, or the process dies; the next one ends the work, by whatever it heard."""

        def run(choices: Choices) -> None:
            world = world_of("p")
            world.add_pod("q")
            before = world.claims()
            with world.unchecked():
                damage(world, how)
                replica = Replica(world)
                with suppress(Crash):
                    drive(
                        repair(replica.state, "n1"), lambda intent: deliver(world, choices.choose(DELIVERIES), intent)
                    )
                world.deliver_late()
                Replica(world).reconcile(rounds=4)
            assert world.claims() == before
            assert isinstance(Replica(world).bind("q"), Bound)

        assert explore(run, faults=1) > 5


class TestGenerationWithoutEnd:
    """A generation that no ledger of ours reaches: nothing that is written after it could be read."""

    @pytest.mark.parametrize("generation", [2**62 + 1, 2**63 - 1, 2**63, 10**40])
    @pytest.mark.parametrize("is_news", [True, False], ids=["while we watch", "before we start"])
    def test_the_node_is_rebuilt_and_others_are_not_touched(self, generation: int, *, is_news: bool) -> None:
        """What it claims stays with the pod that runs there, and the next generation is one of ours again."""
        world = World("n1", "n2")
        for name in ("p", "q", "r"):
            world.add_pod(name, 1)
        replica = Replica(world)
        assert isinstance(replica.bind("p"), Bound)
        text = json.loads(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER])
        forged = json.dumps(text | {"generation": generation})
        claims = world.claims()
        with world.unchecked():
            world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: forged}}})
            replica = replica if is_news else Replica(world)
            replica.catch_up()
            assert failure_of(replica.bind("q")) is Failure.NO_FIT
            assert isinstance(replica.bind("r", "n2"), Bound)
            replica.reconcile()
        assert world.claims() == claims
        assert ledger_of(world).generation < 1000
        assert isinstance(replica.bind("q"), Bound)


class TestFirstLedger:
    """A node without a ledger may have had one under the same name."""

    def test_is_written_once_nobody_is_bound_there_any_more(self) -> None:
        """The node was made anew while a Binding was under way."""
        world = world_of()
        world.add_pod("p", 4)
        drive(Replica(world).start_bind("p"), delay_request(world, BindPod))
        world.store.delete(NODES, "", "n1")
        world.ledgers = False
        world.add_node("n1")
        replica = Replica(world)
        replica.reconcile(rounds=1)
        world.add_pod("q", 4)
        replica.catch_up()
        assert isinstance(replica.bind("q"), Bound)
        world.deliver_late()
        assert owners(world) == {"q": {0, 1, 2, 3}}

    def test_one_list_serves_all_nodes_that_nobody_has_heard_of(self) -> None:
        """So does one fence of each waiting pod, also for nodes that join later."""
        world = World("n1", "n2", machine_name=MACHINE, ledgers=False)
        world.add_pod("waits", 8)
        replica = Replica(world)
        replica.reconcile(rounds=1)
        world.add_node("n3")
        replica.reconcile(rounds=1)
        assert kinds(world) == ["FencePod", "SwapLedger", "SwapLedger", "SwapLedger"]
        assert [intent.node for intent in world.intents if isinstance(intent, ListPods)] == ["", "n1", "n2", "n3"]

    def test_a_node_that_leaves_without_ever_having_had_one_is_no_gap(self) -> None:
        """Most of a cluster's nodes have no GPUs, and come and go."""
        world = World("n1", machine_name=MACHINE, ledgers=False)
        world.add_pod("waits", 8)
        replica = Replica(world)
        replica.reconcile(rounds=1)
        plain = Node(ObjectMeta("plain", uid="plain", resource_version="1"))
        replica.state.nodes.changed(plain)
        replica.state.nodes.deleted(plain)
        world.add_node("n2")
        replica.reconcile(rounds=1)
        assert kinds(world) == ["FencePod", "SwapLedger", "SwapLedger"]

    @pytest.mark.parametrize(
        "gap", ["the node leaves and comes back", "nodes are listed anew", "a live reply skips versions"]
    )
    def test_after_a_gap_everybody_is_fenced_anew(self, gap: str) -> None:
        """Whatever had a ledger in the meantime, we have not heard of it."""
        world = World("n1", machine_name=MACHINE)
        world.add_pod("waits", 8)
        world.ledgers = False
        replica = Replica(world)
        for name in ("n2", "n3"):
            world.add_node(name)
            replica.catch_up()
            if name == "n3":
                leave_gap(world, replica, gap)
            replica.reconcile(rounds=1)
        assert kinds(world) == ["FencePod", "SwapLedger", "FencePod", "SwapLedger"]

    def test_a_node_that_leaves_with_its_ledger_matters_to_its_name_alone(self) -> None:
        """Of all other names every version was heard, so whoever is new among them has never had a ledger."""
        world = World("n1", machine_name=MACHINE)
        world.add_pod("waits", 8)
        world.ledgers = False
        replica = Replica(world)
        world.add_node("n2")
        replica.catch_up()
        replica.reconcile(rounds=1)
        replica.state.nodes.deleted(msgspec.convert(world.store.get(NODES, "", "n1"), Node))
        world.add_node("n3")
        replica.reconcile(rounds=1)
        assert kinds(world) == ["FencePod", "SwapLedger", "SwapLedger"]

    @pytest.mark.slow
    def test_any_single_fault_of_the_first_ledger(self) -> None:
        """A Binding of the node's former life is under way; whatever gets lost, it comes too late."""

        def run(choices: Choices) -> None:
            world = World("n1", machine_name=MACHINE)
            world.add_pod("p", 4)
            drive(Replica(world).start_bind("p"), delay_request(world, BindPod))
            damage(world, "wiped")
            world.add_pod("q", 4)
            with suppress(Crash):
                drive(
                    repair(Replica(world).state, "n1"),
                    lambda intent: deliver(world, choices.choose(DELIVERIES), intent),
                )
            heir = Replica(world)
            heir.reconcile(rounds=2)
            assert isinstance(heir.bind("q"), Bound)
            world.deliver_late()
            assert owners(world) == {"q": {0, 1, 2, 3}}

        assert explore(run, faults=1) > 5
