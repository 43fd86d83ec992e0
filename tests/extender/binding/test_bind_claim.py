"""The claim of the bind protocol, reply by reply; the world checks INV1 and INV2 after every write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.simulated.double.resources import NODES, PODS
from extender.binding.intents import BindPod, Conflict, Intent, NoAnswer, Refused, Reply, SwapLedger
from extender.binding.outcome import Bound, Failure, NotBound
from tests.extender.binds import failure_of, kinds, ready, uuid
from tests.extender.builders import PAIRS
from tests.extender.world import Replica, World, delay_request, drive, lose_reply, lose_request, meddle_before
from topology.annotations import keys
from topology.annotations.codec import digest, encode_topology
from topology.formats.catalog import machine


class TestTheClaim:
    """B3: the ledger changes only if it still is what the choice was made on."""

    def test_a_node_without_a_ledger_takes_nobody(self) -> None:
        """Its first one is not written by a bind, which has no time to make sure that no other one is under way."""
        world = World(ledgers=False)
        world.add_pod("p")
        assert failure_of(Replica(world).bind("p")) is Failure.NO_FIT
        assert world.claims() == {}

    def test_a_lost_race_is_planned_anew(self) -> None:
        """The rival has taken one pair; another one is free."""
        world, replica = ready("p", "q", machine_name=PAIRS)
        rival = Replica(world)
        outcome = drive(replica.start_bind("p"), meddle_before(world, SwapLedger, lambda: rival.bind("q")))
        assert isinstance(outcome, Bound)
        assert world.placed("p").isdisjoint(world.placed("q"))

    def test_a_lost_race_for_the_last_gpus_is_a_clean_error(self) -> None:
        """The pod has no claim then, and the other one is bound."""
        world, replica = ready("p", "q")
        rival = Replica(world)
        outcome = drive(replica.start_bind("p"), meddle_before(world, SwapLedger, lambda: rival.bind("q")))
        assert failure_of(outcome) is Failure.NO_FIT
        assert world.placed("q") == set(world.claims())

    def test_three_lost_races_are_enough(self) -> None:
        """The scheduler tries again, later."""
        world, replica = ready("p")
        outcome = drive(
            replica.start_bind("p"),
            lambda intent: Conflict("changed") if isinstance(intent, SwapLedger) else world.execute(intent),
        )
        assert failure_of(outcome) is Failure.CONFLICT

    def test_a_topology_that_changed_is_looked_at_again(self) -> None:
        """The digest is part of what the claim rests on."""
        world, replica = ready("p")

        def shrink() -> None:
            world.annotate_node("n1", topology=None, digest=None)

        outcome = drive(replica.start_bind("p"), meddle_before(world, SwapLedger, shrink))
        assert outcome == NotBound(Failure.NO_FIT, "no GPU topology is published")
        assert world.claims() == {}

    def test_a_gpu_that_fell_sick_meanwhile_is_not_claimed(self) -> None:
        """The status is part of what the claim rests on, too."""
        world = World()
        world.report("n1", 1)
        world.add_pod("p")
        replica = Replica(world)
        sicken = meddle_before(world, SwapLedger, lambda: world.report("n1", 2, uuid(0)))
        assert failure_of(drive(replica.start_bind("p"), sicken)) is Failure.NO_FIT
        assert world.claims() == {}

    def test_a_node_that_was_made_anew_takes_no_old_plan(self) -> None:
        """Same name, other UID."""
        world, replica = ready("p")

        def replace() -> None:
            world.store.delete(NODES, "", "n1")
            world.add_node("n1")

        outcome = drive(replica.start_bind("p"), meddle_before(world, SwapLedger, replace))
        assert isinstance(outcome, NotBound)
        assert world.claims() == {}

    @pytest.mark.parametrize("lose", [lose_reply, lose_request])
    def test_a_claim_whose_reply_is_lost_is_looked_up(
        self, lose: Callable[[World, type[Intent]], Callable[[Intent], Reply]]
    ) -> None:
        """Written or not, the next round finds out and goes on."""
        world, replica = ready("p")
        assert isinstance(drive(replica.start_bind("p"), lose(world, SwapLedger)), Bound)

    def test_a_claim_that_arrives_late_arrives_in_vain(self) -> None:
        """The ledger has moved on."""
        world, replica = ready("p")
        drive(replica.start_bind("p"), delay_request(world, SwapLedger))
        claims = world.claims()
        world.deliver_late()
        assert world.claims() == claims

    @pytest.mark.parametrize(
        ("reply", "failure"), [(Refused(403, "policy"), Failure.REFUSED), (NoAnswer("down"), Failure.NO_ANSWER)]
    )
    def test_a_claim_that_cannot_be_written_ends_the_bind(self, reply: Reply, failure: Failure) -> None:
        """Without a claim there is no Binding."""
        world, replica = ready("p")
        assert failure_of(drive(replica.start_bind("p"), lambda _: reply)) is failure
        assert "nodeName" not in world.store.get(PODS, "default", "p")["spec"]

    @pytest.mark.parametrize(
        ("reply", "outcome"),
        [
            (NoAnswer("500: no space"), NotBound(Failure.NO_ANSWER, "the claim's outcome is not known: 500: no space")),
            (Refused(422, "422: a policy"), NotBound(Failure.REFUSED, "the claim was refused: 422: a policy")),
            (
                Conflict("409: by a webhook"),
                NotBound(Failure.CONFLICT, "pod or node changed during each of 3 attempts: 409: by a webhook"),
            ),
        ],
    )
    def test_what_the_api_server_says_of_a_claim_is_passed_on(self, reply: Reply, outcome: NotBound) -> None:
        """A full etcd, a policy and a webhook that is down are not races, and only their own words help."""
        world, replica = ready("p")

        def refuse(intent: Intent) -> Reply:
            return reply if isinstance(intent, SwapLedger) else world.execute(intent)

        assert drive(replica.start_bind("p"), refuse) == outcome

    def test_a_claim_without_an_answer_is_told_of_where_the_node_has_none_either(self) -> None:
        """The first of the two is what went wrong."""
        _, replica = ready("p")
        replies = iter([NoAnswer("504: the webhook"), NoAnswer("out of time")])
        assert drive(replica.start_bind("p"), lambda _: next(replies)) == NotBound(
            Failure.NO_ANSWER, "the claim's outcome is not known: 504: the webhook"
        )

    def test_a_binding_without_an_answer_is_told_of_where_the_pod_cannot_be_read_either(self) -> None:
        """Likewise."""
        world, replica = ready("p")
        replies = iter([NoAnswer("504: the webhook"), NoAnswer("out of time")])
        outcome = drive(
            replica.start_bind("p"),
            lambda intent: world.execute(intent) if isinstance(intent, SwapLedger) else next(replies),
        )
        assert outcome == NotBound(Failure.NO_ANSWER, "the Binding's outcome is not known: 504: the webhook")

    def test_own_claims_are_kept(self) -> None:
        """A better set may be free by now; another Binding for the old one may still be under way."""
        world, replica = ready("rival", "p", machine_name=PAIRS)
        replica.bind("rival")
        drive(replica.start_bind("p"), lose_request(world, BindPod))
        kept = {
            gpu
            for gpu, uid in world.claims().items()
            if uid == world.store.get(PODS, "default", "p")["metadata"]["uid"]
        }
        world.set_status("rival", "Succeeded", "terminated")
        replica.catch_up()
        assert isinstance(replica.bind("p"), Bound)
        assert world.placed("p") == kept == {uuid(2, PAIRS), uuid(3, PAIRS)}

    def test_own_claims_that_no_longer_serve_are_fenced_before_others_are_made(self) -> None:
        """The Binding for the first set is held in the network, and must arrive in vain."""
        world, replica = ready("p", machine_name=PAIRS)
        drive(replica.start_bind("p"), delay_request(world, BindPod))
        world.report("n1", 2, uuid(0, PAIRS))
        replica.catch_up()
        world.intents.clear()
        steps = replica.start_bind("p")
        outcome = drive(steps, meddle_before(world, BindPod, world.deliver_late))
        assert isinstance(outcome, Bound)
        assert kinds(world)[:3] == ["GetPod", "FencePod", "SwapLedger"]
        assert world.placed("p") == {uuid(2, PAIRS), uuid(3, PAIRS)} == set(world.claims())


class TestTheRecord:
    """What a Binding carries is written before anything is claimed for it."""

    def test_a_pod_with_more_containers_than_a_record_names_claims_nothing(self) -> None:
        """It is refused when it is read."""
        world, replica = ready(machine_name=PAIRS)
        add_pod_of_steps(world, 95)
        replica.catch_up()
        assert failure_of(replica.bind("p")) is Failure.BAD_REQUEST
        assert world.intents == []

    def test_a_record_that_only_this_node_makes_too_long_claims_nothing(self) -> None:
        """Its GPUs have longer names than NVIDIA's; another node may do."""
        world, replica = ready(machine_name=PAIRS)
        topology = machine(PAIRS, host="n1")
        long = replace(topology, gpus=tuple(replace(gpu, uuid=gpu.uuid.ljust(96, "x")) for gpu in topology.gpus))
        text = encode_topology(long)
        world.annotate_node("n1", topology=text, digest=digest(text))
        add_pod_of_steps(world, 60)
        replica.catch_up()
        outcome = replica.bind("p")
        assert outcome == NotBound(Failure.NO_FIT, "the placement cannot be written: larger than 32768 bytes")
        assert (world.intents, world.claims()) == ([], {})


def add_pod_of_steps(world: World, count: int) -> None:
    """Create a pod whose init containers take all eight GPUs of a node in turn."""
    asks = {"limits": {keys.GPU_RESOURCE: "8"}}
    steps = [{"name": f"step-{number}", "resources": asks} for number in range(count)]
    spec = {"initContainers": steps, "containers": [{"name": "main", "resources": asks}]}
    world.store.create(PODS, "default", {"metadata": {"name": "p"}, "spec": spec})
