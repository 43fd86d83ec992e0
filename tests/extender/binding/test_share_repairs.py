"""Shares through the protocol: a ledger that was lost, pods that bypassed us, and pods that are gone."""

from __future__ import annotations

from benchmarks.simulated.double.resources import NODES, PODS, Object
from extender.binding.intents import SwapLedger
from extender.binding.outcome import Bound, NotBound
from tests.extender.world import Replica, World, drive, meddle_before
from topology.annotations import keys
from topology.annotations.records import (
    Claim,
    Holder,
    Observed,
    Sharer,
    decode_ledger,
    decode_placement,
    encode_observed,
)
from topology.annotations.status_codec import encode_status
from topology.formats.catalog import machine
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus

A, B = (gpu.uuid for gpu in machine("rtx-3090-2", host="n1").gpus)
SHARE_GIB = 20


def sharing_world(max_gpus: int = 2) -> World:
    """Return one node of two GPUs that shares them."""
    world = World()
    tell(world, max_gpus=max_gpus)
    return world


def tell(world: World, *, beyond_gib: int = 0, max_gpus: int = 2) -> None:
    """Let the node's agent write its status, with so much of each GPU used beyond shares."""
    states = tuple(GpuStatus(gpu, share_gib=SHARE_GIB, beyond_shares_gib=beyond_gib) for gpu in (A, B))
    plugin = DevicePluginStatus(Mode.ENFORCE, ready=True, sharing=Sharing(max_gpus, Limits.MPS))
    version = int(world.store.resource_version)
    world.annotate_node("n1", status=encode_status(NodeGpuStatus(version, states, device_plugin=plugin)))


def look(world: World, **seen: tuple[str, int]) -> None:
    """Let the agent report pods with their GPU and share, from a look at the node as it is now."""
    world.looks += 1
    shared: dict[str, list[Sharer]] = {}
    for name, (gpu, gib) in seen.items():
        shared.setdefault(gpu, []).append(Sharer("default", name, "main", gib))
    first = {gpu: Holder("default", of[0].name, "main") for gpu, of in shared.items()}
    version = world.store.get(NODES, "", "n1")["metadata"]["resourceVersion"]
    report = Observed(first, world.looks, node_version=version, shared={gpu: tuple(of) for gpu, of in shared.items()})
    world.annotate_node("n1", observed=encode_observed(report))


def add_share(world: World, name: str, gib: int, node: str = "", **annotations: str) -> Object:
    """Create a pod with a share; with `node` somebody else binds it."""
    limits = {keys.SHARE_RESOURCE: str(gib)}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]} | ({"nodeName": node} if node else {})
    ours = {keys.USER_PREFIX + key.replace("_", "-"): text for key, text in annotations.items()}
    return world.store.create(PODS, "default", {"metadata": {"name": name, "annotations": ours}, "spec": spec})


def claims(world: World) -> set[tuple[str, str, int | None, str, int | None]]:
    """Return pod, GPU, GiB, class and ceiling of each claim."""
    return {(c.name, c.gpu, c.memory_gib, c.sharing_class, c.compute_percent) for c in ledger(world)}


def ledger(world: World) -> tuple[Claim, ...]:
    """Return the node's claims."""
    text = world.store.get(NODES, "", "n1")["metadata"]["annotations"].get(keys.LEDGER)
    return decode_ledger(text).claims if text else ()


def test_a_lost_ledger_comes_back_with_amounts_classes_and_ceilings() -> None:
    """From the records of the pods that are bound; until then nothing is given."""
    world = sharing_world()
    replica = Replica(world)
    for name, gib, word in (("p", 5, "dev"), ("q", 6, "dev"), ("r", 7, "prod")):
        add_share(world, name, gib, sharing_class=word, gpu_compute_percent="30")
        replica.catch_up()
        assert isinstance(replica.bind(name), Bound)
        world.set_status(name, "Running", "running")
    before = claims(world)
    assert len(before) == 3
    with world.unchecked():
        world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: None}}})
        fresh = Replica(world)
        add_share(world, "late", 1)
        fresh.catch_up()
        assert isinstance(fresh.bind("late"), NotBound)
        fresh.reconcile()
    assert claims(world) == before


def test_a_pod_that_bypassed_us_gets_claim_and_record_once_its_share_is_seen() -> None:
    """With its class; the next one of that class goes beside it, and no other."""
    world = sharing_world(max_gpus=1)
    add_share(world, "stray", 8, node="n1", sharing_class="dev")
    world.set_status("stray", "Running", "running")
    replica = Replica(world)
    look(world, stray=(B, 8))
    replica.reconcile()
    assert claims(world) == {("stray", B, 8, "dev", None)}
    found = world.find("stray")
    assert found is not None
    record = decode_placement(found["metadata"]["annotations"][keys.PLACEMENT])
    assert (record.containers, record.memory_gib, record.limits) == ({"main": (B,)}, {"main": 8}, Limits.MPS)
    add_share(world, "prod", 1, sharing_class="prod")
    add_share(world, "dev", 12, sharing_class="dev")
    replica.catch_up()
    assert isinstance(replica.bind("prod"), NotBound)
    assert isinstance(replica.bind("dev"), Bound)


def test_a_share_is_not_given_again_before_its_process_is_gone() -> None:
    """A pod that was deleted by force keeps it until its node's agent has looked later, and saw none of that name there."""
    world = sharing_world(max_gpus=1)
    replica = Replica(world)
    for name in ("p", "q"):
        add_share(world, name, 10)
        replica.catch_up()
        assert isinstance(replica.bind(name), Bound)
        world.set_status(name, "Running", "running")
    (gpu,) = {claim.gpu for claim in ledger(world)}
    look(world, p=(gpu, 10), q=(gpu, 10))
    with world.unchecked():
        world.delete("p", 0)
        add_share(world, "next", 10)
        replica.reconcile()
        assert isinstance(replica.bind("next"), NotBound)
        look(world, p=(gpu, 10), q=(gpu, 10))
        replica.reconcile()
        assert isinstance(replica.bind("next"), NotBound), "it is seen there"
        look(world, q=(gpu, 10))
        replica.reconcile()
        assert isinstance(replica.bind("next"), Bound)


def test_memory_that_turns_up_beyond_shares_while_a_pod_is_bound_is_counted() -> None:
    """The claim rests on what the agent told last; whoever planned with less looks again."""
    world = sharing_world()
    add_share(world, "p", SHARE_GIB)
    replica = Replica(world)
    execute = meddle_before(world, SwapLedger, lambda: tell(world, beyond_gib=4))
    outcome = drive(replica.start_bind("p"), execute)
    assert isinstance(outcome, NotBound)
    assert "beside memory that is used beyond shares" in outcome.message
    assert not claims(world)


def test_a_share_that_moved_takes_claim_and_record_along() -> None:
    """The device plugin gave another GPU than planned; the ledger says what is."""
    world = sharing_world()
    replica = Replica(world)
    add_share(world, "p", 10)
    replica.catch_up()
    assert isinstance(replica.bind("p"), Bound)
    world.set_status("p", "Running", "running")
    (planned,) = {claim.gpu for claim in ledger(world)}
    other = B if planned == A else A
    with world.unchecked():
        look(world, p=(other, 10))
        replica.reconcile()
        look(world, p=(other, 10))
        replica.reconcile()
    assert claims(world) == {("p", other, 10, "", None)}
    found = world.find("p")
    assert found is not None
    assert decode_placement(found["metadata"]["annotations"][keys.PLACEMENT]).containers == {"main": (other,)}


def test_a_class_that_nobody_can_read_harms_no_other_pod_of_the_node() -> None:
    """A ledger could not hold it: a pod that bypassed us with such a class is one without a class, and others are bound."""
    world = sharing_world()
    add_share(world, "stray", 8, node="n1", sharing_class="no class!")
    world.set_status("stray", "Running", "running")
    replica = Replica(world)
    with world.unchecked():
        look(world, stray=(B, 8))
        replica.reconcile()
        assert claims(world) == {("stray", B, 8, "", None)}
        add_share(world, "next", 12)
        replica.catch_up()
        assert isinstance(replica.bind("next"), Bound)
