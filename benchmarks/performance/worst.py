"""The fleets that cost the extender most: every node a topology class of its own, and free GPUs and CPU at random."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import aiohttp

from benchmarks.performance.verbs import FILTER, PRIORITIZE, Sample, about, ask, create, running_fleet
from benchmarks.processes.client import Json
from benchmarks.simulated.fleet import POD_SIZES, SimulatedNode, gpu_pod
from topology.node.model import NodeTopology

OWN_CLASSES, RANDOM_SHAPES = "each its own class", "random shapes"
SETTLE_SECONDS = 60
"""After the first call of each size: what is searched for between calls is found by then, and values are computed."""
_CPUS = (96, 128)


class _OwnClass(SimulatedNode):
    """A node with a driver that no other one has."""

    @property
    def topology(self) -> NodeTopology:
        number = int(self.labels["number"])
        return replace(super().topology, driver_version=f"570.{number // 1000}.{number % 1000}")


def own_classes(nodes: Sequence[SimulatedNode]) -> list[SimulatedNode]:
    """Return the nodes so that no two are of one topology class."""
    return [_OwnClass(node.name, node.machine, labels={"number": str(at)}) for at, node in enumerate(nodes)]


def random_shapes(nodes: Sequence[SimulatedNode]) -> list[SimulatedNode]:
    """Return the nodes with some GPUs held and some CPU there, both at random: of 5,000 some 1,900 differ."""
    random = Random(1)  # noqa: S311 - a simulation
    return [
        replace(node, cpus=random.choice(_CPUS), used=tuple(sorted(random.sample(range(8), random.randrange(7)))))
        for node in nodes
    ]


FLEETS: dict[str, Callable[[Sequence[SimulatedNode]], list[SimulatedNode]]] = {
    OWN_CLASSES: own_classes,
    RANDOM_SHAPES: random_shapes,
}


async def sample_worst(
    folder: Path, simulated: Sequence[SimulatedNode], settings: Json, pods: int
) -> dict[tuple[str, str], list[Sample]]:
    """Return what filter and prioritize take beside each of the fleets in turn, by fleet and verb."""
    samples: dict[tuple[str, str], list[Sample]] = {}
    for place, (name, made) in enumerate(FLEETS.items()):
        async with AsyncExitStack() as stack:
            where = folder / f"worst-{place}"
            where.mkdir()
            fleet = await stack.enter_async_context(running_fleet(where, made(simulated), settings))
            session = await stack.enter_async_context(aiohttp.ClientSession())
            names = [node.name for node in simulated]
            for number in range(len(POD_SIZES) + pods):
                if number == len(POD_SIZES):
                    await asyncio.sleep(SETTLE_SECONDS)
                    samples[name, FILTER], samples[name, PRIORITIZE] = [], []
                spec = gpu_pod(f"pod-{number}", POD_SIZES[number % len(POD_SIZES)], schedulerName="gputopo")
                pod = await create(fleet.api, spec)
                fitting, filtered = await ask(session, fleet.extender, FILTER, about(pod, names))
                samples.setdefault((name, FILTER), []).append(filtered)
                if fitting["NodeNames"]:
                    _, scored = await ask(session, fleet.extender, PRIORITIZE, about(pod, fitting["NodeNames"]))
                    samples.setdefault((name, PRIORITIZE), []).append(scored)
    return samples
