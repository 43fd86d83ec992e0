"""Pods behind our gate that are claimed for, opened, and bound by a kube-scheduler that asks nobody."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.simulated.double.resources import PODS
from extender.binding.intents import BindPod, Done, Intent, OpenGate, Reply
from extender.binding.planned_claims import PlannedPod, claim_planned
from extender.cluster.candidates.holds import Held
from tests.extender.world import Replica, World, drive
from topology.annotations import keys
from topology.node.links import Affinity
from topology.request.gpu_request import GpuRequest

MACHINE = "t4-4"
Execute = Callable[[Intent], Reply]


def queued(*names: str, gpus: int = 2, nodes: tuple[str, ...] = ("n1", "n2")) -> World:
    """Return a cluster of nodes with four GPUs, and pods behind our gate."""
    world = World(*nodes, machine_name=MACHINE)
    for name in names:
        world.add_gated_pod(name, keys.PLAN_GATE, gpus)
    return world


def uid_of(world: World, name: str) -> str:
    return str(world.store.get(PODS, "default", name)["metadata"]["uid"])


def claim(
    world: World,
    masks: dict[str, int],
    node: str = "n1",
    *,
    replica: Replica | None = None,
    execute: Execute | None = None,
    replaces: frozenset[str] | None = None,
) -> set[str]:
    """Claim for these pods, and return the names of those that cannot have their GPUs."""
    planned = [
        PlannedPod(uid_of(world, name), GpuRequest(mask.bit_count(), preferred=Affinity.NVLINK), Held(mask), replaces)
        for name, mask in masks.items()
    ]
    steps = claim_planned((replica or Replica(world)).state, node, planned)
    refused = drive(steps, execute or world.execute)
    return {name for name in masks if uid_of(world, name) in refused}


def claimed(world: World, node: str = "n1") -> dict[str, int]:
    """Return pod → number of its claims on a node."""
    owners = list(world.claims(node).values())
    names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in world.store.list(PODS).items}
    return {names.get(uid, "gone"): owners.count(uid) for uid in owners}


def open_gate(
    world: World, name: str, node: str = "n1", *, version: str = "", is_pinned: bool = True, placement: str = ""
) -> Reply:
    """Open the gate of a pod, in its newest version unless said otherwise."""
    metadata = world.store.get(PODS, "default", name)["metadata"]
    version = version or metadata["resourceVersion"]
    return world.execute(
        OpenGate("default", name, metadata["uid"], version, node, is_pinned, placement=placement),
    )


def bind_around_us(world: World, name: str, node: str) -> None:
    """Bind as kube-scheduler does without an extender."""
    metadata = world.store.get(PODS, "default", name)["metadata"]
    reply = world.execute(BindPod("default", name, metadata["uid"], metadata["resourceVersion"], node, {}))
    assert isinstance(reply, Done)
