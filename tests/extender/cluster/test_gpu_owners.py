"""N16: a UUID exists once. A GPU that several nodes publish belongs to the one whose ledger records it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from benchmarks.simulated.double.resources import NODES
from extender.binding.outcome import Bound
from extender.binding.recording import MAX_PER_ROUND, RETRY_SECONDS, Records, record_gpus
from extender.cluster.caches.publishers import Publishers
from extender.cluster.candidates.openness import DUPLICATE_PUBLISHER
from extender.cluster.objects.kinds import Node
from extender.cluster.state import ClusterState
from extender.inspect.faults import NOT_OWNED, Faults
from tests.extender.builders import cluster, free, gpus, node
from tests.extender.world import Replica, World, drive
from topology.annotations import keys
from topology.annotations.codec import digest, encode_topology
from topology.annotations.records import Claim, Holder, Ledger, Observed, decode_ledger, encode_ledger, encode_observed
from topology.formats.catalog import machine
from topology.node.model import Gpu, NodeTopology

MACHINE, ALL = "t4-4", (0, 1, 2, 3)


def uuids(name: str) -> list[str]:
    """Return the GPUs of a node."""
    return [gpu.uuid for gpu in machine(MACHINE, host=name).gpus]


def publish(world: World, name: str, *gpus: str) -> None:
    """Let the token of a node's agent publish these GPUs."""
    forged = NodeTopology(tuple(Gpu(position, uuid, "Tesla T4", 16 << 30) for position, uuid in enumerate(gpus)))
    text = encode_topology(forged)
    world.annotate_node(name, topology=text, digest=digest(text))


def record(replica: Replica) -> list[str]:
    """Let an extender record the GPUs of all nodes; returns the nodes that it wrote."""
    replica.catch_up()
    names = sorted(replica.state.conditions.unrecorded)
    return [name for name in names if drive(record_gpus(replica.state, name), replica.world.execute)]


def offered(world: World, *running: Replica) -> dict[str, tuple[int, ...]]:
    """Return the free GPUs of each node, and make sure that a new extender and those that run agree."""
    started = Replica(world)
    seen = {name: free(started.state, name) for name in started.state.views}
    for replica in running:
        replica.catch_up()
        assert {name: free(replica.state, name) for name in replica.state.views} == seen
    return seen


def test_a_forged_uuid_takes_nothing_from_the_node_that_has_it_in_its_ledger() -> None:
    """Neither while an extender runs on, nor when one starts afterwards, however old the node that lies is."""
    world = World("evil", "n1", "n2", machine_name=MACHINE)
    running = Replica(world)
    assert record(running) == ["evil", "n1", "n2"]
    publish(world, "evil", uuids("n1")[0], uuids("n2")[3])
    assert offered(world, running) == {"evil": (), "n1": ALL, "n2": ALL}
    assert Replica(world).state.views["evil"].shape.closed == DUPLICATE_PUBLISHER


def test_without_a_record_one_gpu_is_closed_on_both_nodes_and_no_other() -> None:
    """Nobody can say whose it is, and all extenders say so."""
    world = World("evil", "n1", machine_name=MACHINE)
    running = Replica(world)
    publish(world, "evil", *uuids("evil")[:3], uuids("n1")[2])
    assert offered(world, running) == {"evil": (0, 1, 2), "n1": (0, 1, 3)}
    assert record(running) == ["evil", "n1"], "the others are recorded, and not this one"
    assert offered(world, running) == {"evil": (0, 1, 2), "n1": (0, 1, 3)}
    view = Replica(world).state.views["n1"]
    assert [NOT_OWNED in Faults(view).of(position) for position in range(4)] == [False, False, True, False]
    publish(world, "evil", *uuids("evil"))
    assert offered(world, running) == {"evil": ALL, "n1": ALL}


def test_a_report_of_a_holder_does_not_make_a_node_the_owner() -> None:
    """The same token could say that a pod of the node holds the GPU, and the ledger follows such reports."""
    world = World("evil", "n1", machine_name=MACHINE)
    running = Replica(world)
    record(running)
    stolen = uuids("n1")[0]
    pod = world.add_pod("theirs", 1)
    assert isinstance(running.bind("theirs", "evil"), Bound)
    world.set_status("theirs", "Running", "running")
    publish(world, "evil", *uuids("evil")[:3], stolen)
    with world.unchecked():
        claim = Claim(stolen, pod["metadata"]["uid"], "default", "theirs", "main", "")
        before = decode_ledger(world.store.get(NODES, "", "evil")["metadata"]["annotations"][keys.LEDGER])
        forged = Ledger(before.generation + 1, (claim,), before.node_uid, before.gpus)
        patch = {"metadata": {"annotations": {keys.LEDGER: encode_ledger(forged)}}}
        world.patch(NODES, "evil", patch)
        world.annotate_node("evil", observed=encode_observed(Observed({stolen: Holder("default", "theirs", "main")})))
    assert offered(world, running)["n1"] == ALL


def test_a_gpu_that_moves_belongs_to_its_new_node_once_the_old_one_gives_it_up() -> None:
    """The old node no longer lists it, and no claim stands on it; a claim would keep it there."""
    world = World("n1", "n2", machine_name=MACHINE)
    running = Replica(world)
    record(running)
    moved = uuids("n1")[0]
    world.add_pod("a", 4)
    running.catch_up()
    assert isinstance(running.bind("a", "n1"), Bound)
    publish(world, "n2", *uuids("n2"), moved)
    publish(world, "n1", *uuids("n1")[1:])
    assert offered(world, running)["n2"] == ALL, "a pod has it on the node that it was taken out of"
    world.set_status("a", "Succeeded", "terminated")
    running.reconcile()
    assert offered(world, running) == {"n1": (0, 1, 2), "n2": (*ALL, 4)}
    record(running)
    publish(world, "n1", moved, *uuids("n1")[1:])
    assert offered(world, running) == {"n1": (1, 2, 3), "n2": (*ALL, 4)}


def test_a_node_without_a_topology_gives_nothing_up() -> None:
    """Its agent may be about to start, or its topology cannot be read."""
    world = World("evil", "n1", "n2", machine_name=MACHINE)
    running = Replica(world)
    record(running)
    world.annotate_node("n1", topology=None, digest=None)
    world.annotate_node("n2", topology="{", digest=None)
    publish(world, "evil", uuids("n1")[0], uuids("n2")[0])
    assert offered(world)["evil"] == ()
    text = encode_topology(machine(MACHINE, host="n1"))
    world.annotate_node("n1", topology=text, digest=digest(text))
    assert offered(world)["n1"] == ALL


def test_a_machine_under_a_new_name_is_open_once_its_old_node_is_deleted() -> None:
    """What the old Node object recorded goes with it."""
    world = World("old", machine_name=MACHINE)
    running = Replica(world)
    record(running)
    world.add_node("new")
    publish(world, "new", *uuids("old"))
    assert offered(world) == {"old": ALL, "new": ()}
    world.store.delete(NODES, "", "old")
    assert offered(world) == {"new": ALL}


def older(text_of: Node, *claimed: str) -> Node:
    """Replace a node's ledger by one of an earlier version, with claims on these GPUs."""
    claims = tuple(Claim(gpu, "u", "ml", "p", "main", "1") for gpu in claimed)
    annotations = dict(text_of.metadata.annotations or {}) | {keys.LEDGER: encode_ledger(Ledger(1, claims))}
    return replace(text_of, metadata=replace(text_of.metadata, annotations=annotations))


def test_in_a_ledger_that_records_nothing_the_claims_count() -> None:
    """An earlier version wrote it."""
    twin = node("n2", topology=encode_topology(machine("dgx-a100", host="n1")))
    state = cluster(older(node("n1"), *gpus("n1", 3)), twin)
    assert (free(state, "n1"), free(state, "n2"), set(state.views["n2"].not_owned)) == (
        (),
        (),
        {*gpus("n1", *range(8))},
    )
    assert state.views["n1"].not_owned == {*gpus("n1", 0, 1, 2, 4, 5, 6, 7)}


def test_every_write_of_a_ledger_records_the_gpus() -> None:
    """So a node with pods costs no write of its own."""
    world = World("n1", machine_name=MACHINE)
    replica = Replica(world)
    assert replica.state.conditions.unrecorded == {"n1"}
    world.add_pod("a", 1)
    replica.catch_up()
    assert isinstance(replica.bind("a"), Bound)
    replica.catch_up()
    ledger = decode_ledger(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER])
    assert (ledger.gpus, replica.state.conditions.unrecorded) == (tuple(sorted(uuids("n1"))), set())
    assert record(replica) == []


def test_a_ledger_that_was_lost_records_them_again() -> None:
    """It is written by the repair."""
    world = World("n1", machine_name=MACHINE, ledgers=False)
    replica = Replica(world)
    replica.reconcile()
    assert record(replica) == []
    ledger = decode_ledger(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER])
    assert ledger.gpus == tuple(sorted(uuids("n1")))


def test_nodes_are_recorded_a_few_at_a_time_and_not_again_at_once() -> None:
    """After an upgrade every node is due, and one that refuses must not keep others waiting."""
    state = cluster(*(node(f"n{number:03d}") for number in range(MAX_PER_ROUND + 10)))
    records = Records()
    first, second = records.due(state, 0.0), records.due(state, 1.0)
    assert (len(first), len(second), set(first) & set(second)) == (MAX_PER_ROUND, 10, set())
    assert records.due(state, RETRY_SECONDS - 1) == []
    assert records.due(state, RETRY_SECONDS) == first


@pytest.mark.parametrize("is_running", [True, False])
def test_72_stolen_uuids_close_the_node_of_the_thief_alone(is_running: bool) -> None:
    """One token of the oldest node, before any ledger records a GPU."""
    nodes = [node(f"n{number:02d}") for number in range(80)]
    stolen = tuple(Gpu(position, gpus(f"n{position:02d}", 0)[0], "A100", 40 << 30) for position in range(72))
    honest, evil = node("evil"), node("evil", topology=encode_topology(NodeTopology(stolen)), version=2)
    state = cluster(*nodes, honest if is_running else evil)
    if is_running:
        assert len(closed(state)) == 0
        state.nodes.changed(evil)
    assert closed(state) == {"evil"}
    assert [len(free(state, each.metadata.name)) for each in nodes] == [7] * 72 + [8] * 8


def closed(state: ClusterState) -> set[str]:
    """Return the nodes that are not schedulable at all."""
    return {name for name, view in state.views.items() if view.shape.closed}


def test_nodes_for_which_something_may_change_are_returned() -> None:
    """And nothing stays of a node that publishes and records nothing."""
    publishers = Publishers()

    def not_owned() -> list[set[str]]:
        return [set(publishers.not_owned(name)) for name in ("n1", "n2", "n3")]

    assert publishers.publish("n1", ("a", "b")) == set()
    assert publishers.publish("n2", ("b", "c")) == {"n1"}
    assert publishers.publish("n2", ("b", "c")) == set()
    assert not_owned() == [{"b"}, {"b"}, set()]
    assert publishers.publish("n1", ("a", "b"), ("b",)) == {"n2"}
    assert not_owned() == [set(), {"b"}, set()]
    assert publishers.publish("n2", ("b", "c"), ("b",)) == {"n1"}
    assert not_owned() == [{"b"}, {"b"}, set()]
    assert publishers.publish("n1", ("a",)) == {"n2"}
    assert not_owned() == [set(), set(), set()]
    assert publishers.publish("n2", ()) == set()
    assert publishers.publish("n1", ()) == set()
    assert (publishers._nodes, publishers._published, publishers._recorded) == ({}, {}, {})
