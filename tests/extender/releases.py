"""Claims whose pods end, on nodes whose agents report, for the tests of what takes them back."""

from __future__ import annotations

from benchmarks.simulated.double.resources import NODES
from extender.binding.intents import BindPod
from extender.binding.outcome import Bound
from extender.binding.release import Task
from tests.extender.world import Replica, World, drive, lose_request
from topology.annotations import keys
from topology.annotations.records import Holder, Observed, encode_observed


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
    """Return what is to be done, once the extender has heard of everything."""
    replica.catch_up()
    return replica.attention.due(replica.state, replica.seconds)
