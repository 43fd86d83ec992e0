"""Searches for the topology that holds the extender up most: hill climbing over payloads that are valid.

What counts is the most steps of one piece of work that nothing else can come between: a call, a slice between calls, a step of
the values. `python -m tests.security.worst_topology --minutes 5` prints the worst it finds, with the processor's time for each.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, combinations
from math import prod
from operator import mul
from random import Random

from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from extender.verbs.preempt import preempt
from extender.verbs.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from tests.extender.builders import args, at, claim, cluster, node, pod, running
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.errors import PayloadError
from topology.node.links import PciePath
from topology.node.model import MAX_GPUS, MAX_NICS, MAX_NVLINKS, Gpu, Link, Nic, NodeTopology
from topology.placement.topology_class import TopologyClass
from topology.placement.topology_classes import MAX_UNLIKE

SIZES = (1, 2, 3, 4, 6, 7, 8, 9, 16, 32)
REQUESTS: tuple[dict[str, str], ...] = (
    {},
    {keys.REQUIRED_AFFINITY: "nvlink"},
    {keys.REQUIRED_AFFINITY: "pcie-switch"},
    {keys.MIN_BANDWIDTH: "900"},
    {keys.NIC_AFFINITY: "preferred"},
    {keys.COMMUNICATION: "none"},
)
MODELS = ("Tesla V100-SXM2-32GB", "NVIDIA A40", "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "x")
SLICES = 30
"""Of the searches that a topology leaves behind, and of its values, that are looked at."""


@dataclass(frozen=True)
class Cost:
    """Of the dearest piece of work."""

    steps: int = 0
    milliseconds: float = 0.0
    what: str = "nothing"


def random_topology(random: Random, gpus: int) -> NodeTopology:
    """Return a valid topology in which as much as can be is different."""
    found = tuple(
        Gpu(
            i,
            f"u{i}",
            random.choice(MODELS),
            memory_bytes=2**34 + random.randrange(gpus),
            numa_node=random.randrange(4),
            compute_capability=random.choice(((7, 0), (8, 0), (9, 0))),
            pcie_generation=random.randrange(1, 7),
            pcie_width=random.choice((1, 2, 4, 8, 16)),
        )
        for i in range(gpus)
    )
    density, most, left = random.random(), random.randrange(1, 7), [36] * gpus
    links = []
    for a, b in combinations(range(gpus), 2):
        count = min(random.randint(1, most), left[a], left[b]) if random.random() < density else 0
        left[a], left[b] = left[a] - count, left[b] - count
        links.append(Link(a, b, count, random.choice([*PciePath][1:]), random.choice((None, None, True, False))))
    nics = tuple(Nic(f"n{i}", paths=((i, PciePath.PIX),)) for i in range(0, gpus, 3))
    return NodeTopology(found, tuple(links), nics, cpu_vendor=random.choice(("intel", "amd", "power9", None)))


def nested_topology(random: Random) -> NodeTopology:
    """Return a machine of up to 72 GPUs that is alike on several levels, but for a few of its parts."""
    levels = [random.choice((2, 2, 3, 4, 6, 9, 12)) for _ in range(random.choice((1, 2, 3, 4)))]
    while prod(levels) > MAX_GPUS:
        levels.pop()
    count, sizes = prod(levels), [*accumulate(levels, mul)]
    ties = [
        (random.choice((0, 0, 1, 2)), random.choice([*PciePath][1:]), random.choice((None, True, False))) for _ in sizes
    ]
    switch_links, odd, model = random.choice((0, 0, 2, 6)), random.randrange(3), random.choice(MODELS)
    gpus = tuple(
        Gpu(i, f"u{i}", model, memory_bytes=2**34 + i * (i < odd), numa_node=i // levels[0], switch_links=switch_links)
        for i in range(count)
    )
    left, links = [MAX_NVLINKS - switch_links] * count, []
    for a, b in combinations(range(count), 2):
        wanted, path, p2p = ties[next(at for at, size in enumerate(sizes) if a // size == b // size)]
        nvlinks = min(wanted, left[a], left[b])
        left[a], left[b] = left[a] - nvlinks, left[b] - nvlinks
        links.append(Link(a, b, nvlinks, path, p2p))
    nics = tuple(Nic(f"n{i}", paths=((i, PciePath.PIX),)) for i in range(0, count, random.choice((2, 3, 5))))
    return NodeTopology(gpus, tuple(links), nics[:MAX_NICS], cpu_vendor=random.choice(("intel", "amd", "power9", None)))


def mutated(random: Random, topology: NodeTopology) -> NodeTopology:
    """Return a valid topology that differs a little, or a new one."""
    if random.random() < 0.1:
        return random_topology(random, random.choice((6, 7, 8, 9, 10, 12, 16, 16, 20, MAX_UNLIKE)))
    if random.random() < 0.1:
        return nested_topology(random)
    links, gpus = [*topology.links], [*topology.gpus]
    for _ in range(random.randint(1, 6)):
        if random.random() < 0.7 and links:
            place = random.randrange(len(links))
            links[place] = replace(links[place], nvlinks=random.randrange(5), path=random.choice([*PciePath][1:]))
        else:
            place = random.randrange(len(gpus))
            changes: list[dict[str, object]] = [
                {"switch_links": random.choice((0, 0, 2, 6))},
                {"pcie_width": random.choice((1, 2, 4, 8, 16))},
                {"model": random.choice(MODELS)},
                {"memory_bytes": 2**34 + random.randrange(64)},
            ]
            gpus[place] = replace(gpus[place], **random.choice(changes))  # type: ignore[arg-type]
    try:
        return replace(topology, gpus=tuple(gpus), links=tuple(links))
    except PayloadError:
        return topology


def costs_of(topology: NodeTopology, random: Random, questions: int = 6) -> list[Cost]:
    """Return all pieces of work for a node that publishes this: reading, calls, slices between them, values."""
    text = encode_topology(topology)
    count = len(topology)
    guests = [running(f"guest{i}", "n1", f"u{i}") for i in range(min(count // 2, 6))]
    claims = tuple(claim(f"u{i}", guest.metadata.uid) for i, guest in enumerate(guests))
    state = cluster(*guests)
    published = node("n1", topology=text, claims=claims)
    costs = [_timed("reading", lambda: state.nodes.replaced([published]), None)]
    view = state.views["n1"]
    compiled = view.shape.topology_class
    if compiled is None:
        assert view.shape.closed == "GPU topology cannot be read" and count > MAX_UNLIKE
        return costs
    for number in range(questions):
        size, wants = random.choice(SIZES), random.choice(REQUESTS)
        costs += _call(state, compiled, f"p{number}", size, wants)
    costs += _eviction(state, compiled, [guest.metadata.uid for guest in guests], min(count, 8))
    costs += _pieces(state.effort.work(), "a slice", compiled)
    costs += _pieces(state.values.appraise(), "a step of the values", compiled)
    return costs


def _call(state: ClusterState, compiled: TopologyClass, name: str, size: int, wants: dict[str, str]) -> Iterator[Cost]:
    asked = args(pod(name, size, wants=wants), "n1")
    what = f"of {size} {wants}"
    yield _timed(f"filter {what}", lambda: filter_nodes(state, asked, at()), compiled)
    yield _timed(f"prioritize {what}", lambda: prioritize_nodes(state, asked, at()), compiled)


def _eviction(state: ClusterState, compiled: TopologyClass, uids: list[str], size: int) -> Iterator[Cost]:
    asking = pod("vip", size, priority=1000)
    candidates = {"n1": MetaVictims([MetaPod(uid) for uid in uids], 0)}
    asked = ExtenderPreemptionArgs(asking, None, candidates)
    return _pieces(preempt(state, asked, at, budget_seconds=1.0), "a step of preempt", compiled)


def _pieces(work: Iterator[object], what: str, compiled: TopologyClass) -> Iterator[Cost]:
    for _ in range(SLICES):
        yield _timed(what, lambda: next(work, None), compiled)


def _timed(what: str, run: Callable[[], object], compiled: TopologyClass | None) -> Cost:
    before = compiled.meter.steps if compiled else 0
    began = time.process_time()
    run()
    milliseconds = 1000 * (time.process_time() - began)
    return Cost(compiled.meter.steps - before if compiled else 0, milliseconds, what)


def climb(seed: int) -> Iterator[tuple[list[Cost], NodeTopology]]:
    """Yield the costs of one topology after the other, each made from the worst so far; without end."""
    random = Random(seed)
    worst, best = Cost(), random_topology(random, 16)
    while True:
        tried = mutated(random, best)
        try:
            costs = costs_of(tried, random)
        except PayloadError:  # larger than a payload may be
            continue
        dearest = max(costs, key=lambda cost: cost.steps)
        if dearest.steps >= worst.steps:
            worst, best = dearest, tried
        yield costs, tried


def main() -> None:
    """Climb for a while and print what was worst."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    end = time.monotonic() + 60 * wanted.minutes
    dearest = slowest = Cost()
    tried = 0
    gc.disable()  # what the collector does between is not the topology's
    for costs, topology in climb(wanted.seed):
        gc.collect()
        tried += 1
        cost = max(costs, key=lambda cost: cost.steps)
        if cost.steps > dearest.steps:
            dearest = cost
            print(f"{len(topology)} GPUs: {cost.steps} steps, {cost.milliseconds:.1f} ms: {cost.what}", flush=True)
        cost = max(costs, key=lambda cost: cost.milliseconds)
        if cost.milliseconds > slowest.milliseconds:
            slowest = cost
            print(f"{len(topology)} GPUs: {cost.milliseconds:.1f} ms, {cost.steps} steps: {cost.what}", flush=True)
        if time.monotonic() > end:
            break
    print(f"{tried} topologies; most steps: {dearest}; most time: {slowest}")


if __name__ == "__main__":
    main()
