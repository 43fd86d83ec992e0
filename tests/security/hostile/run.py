"""One family of hostile tenants against one cluster, drawn from one seed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.simulated.double.resources import NODES, PODS
from tests.security.hostile import cluster as clusters
from tests.security.hostile.cluster import EVIL, Cluster
from tests.security.hostile.laws import Broken, Laws
from tests.security.hostile.tenants import GATE, Tenant, node_objects, payloads
from tests.security.hostile.tenants import PODS as OF_PODS
from topology.annotations import keys

Json = dict[str, Any]

BATCH = 50
"""Pods that are made between two looks at what calls cost, and asked about at once: fewer than may stand in line."""
QUOTA = 200
"""GPUs, or pods with shares, that tenants have at one time, an eighth of the cluster's."""
SHOWN = 6
PAYLOADS, NODE_OBJECTS, EVERYTHING = "payloads", "node-objects", "everything"
FAMILIES = (*OF_PODS, PAYLOADS, NODE_OBJECTS, EVERYTHING)


@dataclass
class Run:
    """What has happened so far."""

    family: str
    seed: int
    laws: Laws
    writes: int = 0
    bound: int = 0
    """Pods of tenants so far."""
    held: dict[str, int] = field(default_factory=dict)
    """What those of them have that are there, by UID."""
    last: deque[str] = field(default_factory=lambda: deque(maxlen=SHOWN))
    broken: Broken | None = None
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def __str__(self) -> str:
        """Say how it ended, and how to repeat it."""
        how = f"family {self.family}, seed {self.seed}, {self.writes} writes, {self.bound} bound, {self.seconds:.0f} s"
        said = ", ".join(f"{law} {value:.0f}" for law, value in self.laws.worst.items())
        if self.broken is None:
            return f"{how}: all laws hold ({said})"
        return "\n".join((f"{how}: BROKEN {self.broken} ({said})", *(f"  last: {line[:400]}" for line in self.last)))


async def run(folder: Path, family: str, seed: int, *, writes: int = 10**9, seconds: float = 10**9) -> Run:
    """Let a family loose for so many writes or seconds, or until a law is broken."""
    async with clusters.running(folder, Random(seed)) as cluster:
        this = Run(family, seed, Laws(cluster))
        try:
            await this.laws.learn()
            end = time.monotonic() + seconds
            while this.writes < writes and time.monotonic() < end:
                # What a tenant does depends on the seed, and not on what became of those before.
                await _episode(this, cluster, Random(f"{seed} {family} {this.writes}"), writes - this.writes)
            await this.laws.of_sickness()
        except Broken as broken:
            this.broken = broken
    this.seconds = time.monotonic() - this.began
    return this


async def _episode(this: Run, cluster: Cluster, random: Random, most: int) -> None:
    family = this.family if this.family != EVERYTHING else random.choice(FAMILIES)
    if family in (PAYLOADS, NODE_OBJECTS):
        await _tokens(this, cluster, random, family, most)
    else:
        await _tenant(this, cluster, random, Tenant.drawn(f"t{this.writes}", random, family, most))


async def _tenant(this: Run, cluster: Cluster, random: Random, tenant: Tenant) -> None:
    """Have all pods of a tenant made, asked about, bound, changed and deleted, some at a time."""
    this.last.append(str(tenant))
    there = deque[Json]()
    places = _places(
        random, tenant.place, cluster.of_tenants, await cluster.passing(_probe(tenant), cluster.of_tenants)
    )
    for first in range(0, tenant.pods, BATCH):
        numbers = range(first, min(first + BATCH, tenant.pods))
        pods = [cluster.create(EVIL, tenant.pod(number)) for number in numbers]
        there.extend(pods)
        this.writes += len(pods)
        to_schedule = [(pod, next(places)) for pod in pods if random.random() < tenant.asks and not _is_gated(pod)]
        await _schedule(this, cluster, to_schedule, binds=tenant.binds)
        for number, pod in zip(numbers, pods, strict=True):
            if random.random() < tenant.patches:
                cluster.patch(PODS, EVIL, pod["metadata"]["name"], tenant.status(number))
        while len(there) > tenant.keeps:
            _leave(this, cluster, there.popleft())
        await _after_a_batch(this, cluster)
    await _look(this.laws)
    while there and not tenant.stays:
        _leave(this, cluster, there.popleft())


def _leave(this: Run, cluster: Cluster, pod: Json) -> None:
    """Have a pod end, and what it held come back to the quota."""
    this.held.pop(pod["metadata"]["uid"], None)
    cluster.end(pod)


async def _schedule(this: Run, cluster: Cluster, waiting: list[tuple[Json, list[str]]], *, binds: bool) -> None:
    """Call filter for pods, and bind those that fit if they are to be bound and there is some of the quota left."""
    fits = await asyncio.gather(*(cluster.passing(pod, names) for pod, names in waiting))
    for (pod, names), passing in zip(waiting, fits, strict=True):
        if passing and binds and sum(this.held.values()) < QUOTA:
            this.last.append(f"bound {str(pod['metadata'])[:200]} to {passing[0]}")
            if await this.laws.of_a_yes(pod, names, passing):
                this.held[pod["metadata"]["uid"]] = _gpus(pod)
                this.bound += 1


def _probe(tenant: Tenant) -> Json:
    """Return the tenant's first pod as filter is asked about it before it exists."""
    pod = tenant.pod(0)
    return {**pod, "metadata": {**pod["metadata"], "namespace": EVIL, "uid": "00000000-0000-0000-0000-000000000000"}}


def _places(random: Random, place: str, names: list[str], fitting: list[str]) -> Iterator[list[str]]:
    """Yield the nodes that one pod after the other may go to; the only one is one that the first pod fits."""
    home = random.choice(fitting or names)
    rack = [name for name in names if name.split("-")[0] == home.split("-")[0]]
    while True:
        match place:
            case "anywhere":
                yield names
            case "rack":
                yield rack
            case "node":
                yield [home]
            case _:
                yield [random.choice(names)]


async def _tokens(this: Run, cluster: Cluster, random: Random, kind: str, most: int) -> None:
    """Have somebody write what it likes with the tokens of some nodes."""
    makers = {
        node.name: payloads(random, node, cluster.honest) if kind == PAYLOADS else node_objects(random)
        for node in cluster.with_tokens
    }
    for _ in range(0, min(most, random.choice((200, 1000))), len(makers)):
        for name, patches in makers.items():
            patch = next(patches)
            this.last.append(f"patched {name} with {str(patch)[-200:]}")
            cluster.patch(NODES, "", name, patch)
            this.writes += 1
        await _after_a_batch(this, cluster)
        await this.laws.of_pages()
    await _look(this.laws)


async def _after_a_batch(this: Run, cluster: Cluster) -> None:
    """Look whether the laws hold that are looked at quickly."""
    await this.laws.of_calls()
    await cluster.caught_up()
    await this.laws.of_the_loop()
    await this.laws.of_memory()


async def _look(laws: Laws) -> None:
    looks: tuple[Callable[[], Awaitable[None]], ...] = (
        laws.of_pods,
        laws.of_calls,
        laws.of_pages,
        laws.of_the_loop,
        laws.of_memory,
    )
    laws.begin_sickness()
    for look in looks:
        await look()


def _is_gated(pod: Json) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def _gpus(pod: Json) -> int:
    """Return what a pod that is bound takes of the quota."""
    limits = (container["resources"].get("limits") or {} for container in pod["spec"]["containers"])
    return max(1, sum(int(of_one.get(keys.GPU_RESOURCE, "0")) for of_one in limits))
