"""Nodes of four GPUs, what strangers and agents do to them, and what their ledgers say."""

from __future__ import annotations

from benchmarks.simulated.double.resources import NODES, PODS
from extender.binding.intents import GetNode, GetPod, GetPodVersion, ListPods
from extender.binding.outcome import Bound
from tests.extender.world import Replica, World
from topology.annotations import keys
from topology.annotations.records import Holder, Ledger, Observed, decode_ledger, encode_ledger, encode_observed
from topology.formats.catalog import machine

MACHINE = "t4-4"
GPUS = tuple(gpu.uuid for gpu in machine(MACHINE, host="n1").gpus)


def world_of(*pods: str, gpus: int = 2) -> World:
    """Return a node of four GPUs on which these pods are bound."""
    world = World("n1", "n2", machine_name=MACHINE)
    for name in pods:
        world.add_pod(name, gpus)
        assert isinstance(Replica(world).bind(name), Bound)
    return world


def damage(world: World, how: str) -> None:
    """Do to the ledger what a stranger could do."""

    def edit(text: str) -> str:
        ledger = decode_ledger(text)
        return encode_ledger(Ledger(ledger.generation, ledger.claims[1:], ledger.node_uid))

    text = world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER]
    changed = {"wiped": None, "truncated": text[:20], "edited": edit(text)}[how]
    world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: changed}}})


def observe(world: World, **held: tuple[int, ...]) -> None:
    """Let the node's agent report which pod holds which GPUs (positions), in a look of its own."""
    gpus = {GPUS[at]: Holder("default", name, "main") for name, positions in held.items() for at in positions}
    world.looks += 1
    world.annotate_node("n1", observed=encode_observed(Observed(gpus, generation=world.looks)))


def bind_around(world: World, name: str, gpus: int) -> None:
    """Do what a scheduler without an extender does."""
    world.add_pod(name, gpus)
    world.store.bind("default", name, {"metadata": {"name": name}, "target": {"name": "n1"}})


def owners(world: World) -> dict[str, set[int]]:
    """Return pod → positions of its GPUs, as the ledger has it."""
    names = {item["metadata"]["uid"]: item["metadata"]["name"] for item in world.store.list(PODS).items}
    found: dict[str, set[int]] = {}
    for gpu, uid in world.claims().items():
        found.setdefault(names[uid], set()).add(GPUS.index(gpu))
    return found


def kinds(world: World) -> list[str]:
    """Return what was written, in order."""
    return [
        type(intent).__name__
        for intent in world.intents
        if not isinstance(intent, GetPod | GetPodVersion | GetNode | ListPods)
    ]
