"""The bind protocol where nobody interferes, and where the pod or the node rules it out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.simulated.double.resources import NODES, PODS
from extender.binding.outcome import Bound, Failure, NotBound
from extender.cluster.candidates.holds import Hold
from tests.extender.binds import failure_of, kinds, ready, uuid
from tests.extender.builders import PAIRS
from tests.extender.world import Replica, World
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import PlacementRecord, decode_ledger, decode_placement
from topology.node.nics import nics_by_gpu, nics_of


def nics_under(world: World, record: PlacementRecord) -> tuple[str, ...]:
    """Return the RDMA devices under the switches of a record's GPUs, as the node's topology says."""
    topology = decode_topology(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.TOPOLOGY])
    near = nics_by_gpu(topology)
    return nics_of(near[topology.by_uuid[gpu]] for gpus in record.containers.values() for gpu in gpus)


class TestTheStraightWay:
    """Nobody interferes."""

    def test_two_writes_bind_a_pod(self) -> None:
        """The claim, then the Binding; nothing is read."""
        world, replica = ready("p")
        outcome = replica.bind("p")
        assert isinstance(outcome, Bound)
        assert kinds(world) == ["SwapLedger", "BindPod"]
        assert frozenset(outcome.containers["main"]) == world.placed("p") == set(world.claims())

    def test_the_placement_record_is_true_to_the_ledger(self) -> None:
        """Each container has its share; affinity and bandwidth are the plan's."""
        world = World(machine_name="dgx-a100")
        limits = {"resources": {"limits": {keys.GPU_RESOURCE: "2"}}}
        containers = [{"name": "a", **limits}, {"name": "b", **limits}]
        pod = world.store.create(PODS, "default", {"metadata": {"name": "p"}, "spec": {"containers": containers}})
        assert isinstance(Replica(world).bind("p"), Bound)
        bound = world.store.get(PODS, "default", "p")
        record = decode_placement(bound["metadata"]["annotations"][keys.PLACEMENT])
        ledger = decode_ledger(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER])
        assert {(claim.container, claim.gpu) for claim in ledger.claims} == {
            (container, gpu) for container, gpus in record.containers.items() for gpu in gpus
        }
        assert {claim.resource_version for claim in ledger.claims} == {pod["metadata"]["resourceVersion"]}
        assert (record.affinity, record.bandwidth is not None) == ("nvlink", True)
        assert record.ledger_generation == ledger.generation
        assert record.nics == nics_under(world, record), "those of the switches of its GPUs, once each"

    def test_a_pod_without_gpus_needs_no_claim(self) -> None:
        """One write, no record."""
        world, replica = ready("p", gpus=0)
        assert replica.bind("p") == Bound(PlacementRecord({}))
        assert kinds(world) == ["GetPod", "BindPod"]
        assert (world.claims(), world.placed("p")) == ({}, frozenset())

    def test_a_pod_that_the_cache_has_not_heard_of_is_read_live(self) -> None:
        """The watch may be behind the scheduler's."""
        world, replica = ready()
        world.add_pod("p")
        assert isinstance(replica.bind("p"), Bound)
        assert kinds(world) == ["GetPod", "SwapLedger", "BindPod"]

    def test_binding_again_changes_nothing(self) -> None:
        """The scheduler may have missed the first answer."""
        world, replica = ready("p")
        first = replica.bind("p")
        version = world.store.resource_version
        assert replica.bind("p") == first
        replica.catch_up()
        assert replica.bind("p") == first
        assert world.store.resource_version == version

    def test_the_soft_hold_is_taken_up(self) -> None:
        """What prioritize scored is what the pod gets, though the plan would start with the lowest pair."""
        world, replica = ready("p", machine_name=PAIRS)
        uid = world.store.get(PODS, "default", "p")["metadata"]["uid"]
        replica.state.holds.put(uid, Hold("n1", 0b110000, 60.0))
        replica.bind("p")
        assert world.placed("p") == {uuid(4, PAIRS), uuid(5, PAIRS)}
        assert len(replica.state.holds) == 0

    def test_other_pods_holds_are_avoided_while_there_is_a_choice(self) -> None:
        """They are advice: when nothing else fits, they do not count."""
        world, replica = ready("p", "q", machine_name=PAIRS)
        replica.state.holds.put("other", Hold("n1", 0b00000011, 60.0))
        replica.bind("p")
        assert world.placed("p") == {uuid(2, PAIRS), uuid(3, PAIRS)}
        replica.state.holds.put("other", Hold("n1", 0b11110011, 60.0))
        assert isinstance(replica.bind("q"), Bound)

    def test_dead_claims_are_replaced_in_the_same_write(self) -> None:
        """No release has to come first."""
        world, replica = ready("p", "q")
        replica.bind("p")
        world.set_status("p", "Succeeded", "terminated")
        replica.catch_up()
        assert isinstance(replica.bind("q"), Bound)
        assert set(world.claims().values()) == {world.store.get(PODS, "default", "q")["metadata"]["uid"]}

    def test_nothing_is_bound_to_a_node_whose_ledger_is_lost(self) -> None:
        """C15: a missing ledger is not an empty one; it is rebuilt first."""
        world, replica = ready("p", "q", gpus=4, machine_name=PAIRS)
        replica.bind("p")
        before = world.claims()
        with world.unchecked():
            world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: None}}})
            late = Replica(world)
            assert isinstance(late.bind("q"), NotBound)
            late.reconcile(rounds=1)
        assert isinstance(late.bind("q"), Bound)
        assert before.items() < world.claims().items()


class TestCleanErrors:
    """Nothing is written, and the answer says why."""

    @pytest.mark.parametrize(
        ("meddle", "failure"),
        [
            (lambda world: world.delete("p"), Failure.POD_GONE),
            (lambda world: (world.delete("p"), world.add_pod("p")), Failure.POD_GONE),
            (lambda world: world.set_status("p", "Failed"), Failure.POD_ENDED),
            (lambda world: Replica(world).bind("p", "n2"), Failure.BOUND_ELSEWHERE),
        ],
        ids=["gone", "a namesake", "ended", "bound elsewhere"],
    )
    @pytest.mark.parametrize("cached", [True, False])
    def test_a_pod_that_cannot_be_bound(
        self, meddle: Callable[[World], object], failure: Failure, *, cached: bool
    ) -> None:
        """Whether the cache knows or the API has to say."""
        world = World("n1", "n2")
        uid = world.add_pod("p")["metadata"]["uid"]
        replica = Replica(world)
        meddle(world)
        if cached:
            replica.catch_up()
        assert failure_of(replica.bind("p", uid=uid)) is failure
        assert world.claims("n1") == {}
        if failure is Failure.POD_GONE and (namesake := world.find("p")):
            assert "nodeName" not in namesake["spec"]

    @pytest.mark.parametrize("cached", [True, False])
    def test_a_pod_that_somebody_else_bound(self, *, cached: bool) -> None:
        """It is on the node, with GPUs that nobody chose."""
        world, replica = ready("p")
        world.store.bind("default", "p", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}})
        if cached:
            replica.catch_up()
        assert failure_of(replica.bind("p")) is Failure.NO_RECORD

    def test_a_node_where_nothing_fits(self) -> None:
        """A requirement is enforced here as in filter."""
        world = World(machine_name="t4-4")
        world.add_pod("p", 2, **{keys.REQUIRED_AFFINITY: "nvlink"})
        replica = Replica(world)
        assert failure_of(replica.bind("p")) is Failure.NO_FIT
        assert world.intents == []

    def test_a_closed_node(self) -> None:
        """Its reason is the answer."""
        world, replica = ready("p")
        world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: '{"v":9}'}}})
        replica.catch_up()
        assert replica.bind("p") == NotBound(Failure.NO_FIT, "GPU ledger is of a version that is not understood")
        assert world.intents == []

    def test_a_node_that_nobody_knows(self) -> None:
        """The watch will tell; a guess would not help."""
        _, replica = ready("p")
        assert failure_of(replica.bind("p", "n9")) is Failure.NODE_GONE

    def test_a_request_that_cannot_be_read(self) -> None:
        """The key and the reason are the answer."""
        world = World()
        world.add_pod("p", 2, **{keys.MIN_BANDWIDTH: "fast"})
        outcome = Replica(world).bind("p")
        assert outcome == NotBound(
            Failure.BAD_REQUEST, f"{keys.MIN_BANDWIDTH}: 'fast' is not a positive decimal number"
        )

    def test_an_extender_that_has_not_seen_the_cluster(self) -> None:
        """It would take every GPU for free."""
        _, replica = ready("p")
        replica.state.pods.synced = False
        assert failure_of(replica.bind("p")) is Failure.NOT_SYNCED
