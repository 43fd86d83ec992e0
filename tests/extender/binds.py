"""What the tests of bind share: a small world with pods that wait, and what became of a bind there."""

from __future__ import annotations

from extender.binding.outcome import Failure, NotBound, Outcome
from tests.extender.world import Replica, World
from topology.formats.catalog import machine


def failure_of(outcome: Outcome) -> Failure | None:
    return outcome.failure if isinstance(outcome, NotBound) else None


def kinds(world: World) -> list[str]:
    return [type(intent).__name__ for intent in world.intents]


def ready(*pods: str, gpus: int = 2, machine_name: str = "rtx-3090-2") -> tuple[World, Replica]:
    """Return a world with these pods pending, and an extender that knows it."""
    world = World(machine_name=machine_name)
    for name in pods:
        world.add_pod(name, gpus)
    return world, Replica(world)


def uuid(position: int, machine_name: str = "rtx-3090-2") -> str:
    return machine(machine_name, host="n1").gpus[position].uuid
