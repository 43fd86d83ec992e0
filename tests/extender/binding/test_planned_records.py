"""A record that is written with the plan holds only as long as the ledger must have the claims, and nowhere else."""

from __future__ import annotations

from benchmarks.simulated.double.resources import NODES
from extender.binding.intents import Done, WritePlacement
from extender.binding.outcome import Bound
from extender.binding.planned_claims import planned_record
from tests.extender.binding.planned_pods import bind_around_us, claim, claimed, open_gate, queued, uid_of
from tests.extender.world import Replica, World
from topology.annotations import keys
from topology.node.links import Affinity
from topology.request.gpu_request import GpuRequest


def open_with_record(world: World, name: str, *, is_pinned: bool = True) -> None:
    """Open the gate of a pod with two claims on n1, and record them in the same write."""
    state, request = Replica(world).state, GpuRequest(2, preferred=Affinity.NVLINK)
    pod = state.pods.get(uid_of(world, name))
    assert pod
    record = planned_record(state, pod.pod, "n1", request)
    assert record
    assert isinstance(open_gate(world, name, is_pinned=is_pinned, placement=record), Done)


def recorded(replica: Replica, name: str) -> set[str] | None:
    """Return the GPUs that a pod's record gives it, `None` where no record holds."""
    replica.catch_up()
    pod = replica.state.pods.get(uid_of(replica.world, name))
    assert pod
    return None if pod.placed is None else {*pod.placed}


def test_a_record_that_came_with_the_plan_holds_where_the_pod_is_bound_as_planned() -> None:
    """It is not written again: the ledger says the same."""
    world = queued("a")
    claim(world, {"a": 0b0011})
    open_with_record(world, "a")
    replica = Replica(world)
    assert recorded(replica, "a") is None, "it is not bound"
    bind_around_us(world, "a", "n1")
    assert recorded(replica, "a") == world.claims().keys()
    replica.reconcile(rounds=2, seconds=2.0)
    assert WritePlacement not in map(type, world.intents)


def test_a_record_that_came_with_the_plan_holds_on_no_other_node() -> None:
    """Until our Binding, or the reconciler, writes another one."""
    world = queued("a", "b")
    claim(world, {"a": 0b0011, "b": 0b1100})
    open_with_record(world, "a", is_pinned=False)
    open_with_record(world, "b", is_pinned=False)
    bind_around_us(world, "a", "n2")
    replica = Replica(world)
    assert recorded(replica, "a") is None
    assert isinstance(replica.bind("b", "n2"), Bound)
    assert recorded(replica, "b") == {gpu for gpu, uid in world.claims("n2").items() if uid == uid_of(world, "b")}


def test_a_record_that_came_with_the_plan_ends_with_its_claims() -> None:
    """These may be another pod's since, though the pod is bound as it was planned."""
    world = queued("a")
    world.add_pod("thief", 4)
    claim(world, {"a": 0b0011})
    open_with_record(world, "a", is_pinned=False)
    Replica(world).reconcile(rounds=3)
    assert claimed(world) == {}, "an orphan"
    assert isinstance(Replica(world).bind("thief"), Bound)
    bind_around_us(world, "a", "n1")
    replica = Replica(world)
    assert recorded(replica, "a") is None
    assert replica.state.views["n1"].conflicts == {}


def test_a_record_that_came_with_the_plan_is_not_believed_against_a_ledger_that_was_rebuilt_before() -> None:
    """The gate is opened by a write that was under way meanwhile. The node takes no pod until a report says what this one has."""
    world = queued("a")
    world.add_pod("thief", 4)
    claim(world, {"a": 0b0011})
    state, request = Replica(world).state, GpuRequest(2, preferred=Affinity.NVLINK)
    pod = state.pods.get(uid_of(world, "a"))
    assert pod
    record, version = planned_record(state, pod.pod, "n1", request), pod.pod.metadata.resource_version
    world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: None}}})
    replica = Replica(world)
    replica.reconcile(rounds=4, seconds=2.0)
    assert isinstance(open_gate(world, "a", version=version, placement=record), Done)
    assert isinstance(replica.bind("thief"), Bound)
    with world.unchecked():
        bind_around_us(world, "a", "n1")
        view = Replica(world).state.views["n1"]
    assert (claimed(world), view.conflicts) == ({"thief": 4}, {})
    assert view.shape.hidden == 2
