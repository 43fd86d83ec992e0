"""One family of hostile tenants against one cluster, drawn from one seed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.simulated.double.resources import NODES, PODS
from tests.security.hostile import cluster as clusters
from tests.security.hostile.cluster import EVIL, Cluster
from tests.security.hostile.laws import Broken, Laws
from tests.security.hostile.tenants import GATE, Field, Tenant, node_objects, payloads
from tests.security.hostile.tenants import PODS as OF_PODS
from topology.annotations import keys

Json = dict[str, Any]

BATCH = 25
"""Writes between two looks at what calls cost."""
LOOKS = 8
"""At what takes longer, of one tenant."""
QUOTA = 200
"""GPUs, or pods with shares, that tenants are given in all, an eighth of the cluster's."""
SHOWN = 6
PAYLOADS, NODE_OBJECTS, EVERYTHING = "payloads", "node-objects", "everything"
FAMILIES = (*OF_PODS, PAYLOADS, NODE_OBJECTS, EVERYTHING)


@dataclass
class Run:
    """What has happened so far."""

    family: str
    seed: int
    writes: int = 0
    bound: int = 0
    last: deque[str] = field(default_factory=lambda: deque(maxlen=SHOWN))
    broken: Broken | None = None
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    laws: Laws | None = None

    def __str__(self) -> str:
        """Say how it ended, and how to repeat it."""
        how = f"family {self.family}, seed {self.seed}, {self.writes} writes, {self.bound} bound, {self.seconds:.0f} s"
        worst = self.laws.worst if self.laws else {}
        said = ", ".join(f"{law} {value:.0f}" for law, value in worst.items())
        if self.broken is None:
            return f"{how}: all laws hold ({said})"
        return "\n".join((f"{how}: BROKEN {self.broken} ({said})", *(f"  last: {line[:400]}" for line in self.last)))


async def run(folder: Path, family: str, seed: int, *, writes: int = 10**9, seconds: float = 10**9) -> Run:
    """Let a family loose for so many writes or seconds, or until a law is broken."""
    random, this = Random(f"{seed} {family}"), Run(family, seed)
    async with clusters.running(folder, random) as cluster:
        this.laws = Laws(cluster)
        try:
            await this.laws.learn()
            end = time.monotonic() + seconds
            while this.writes < writes and time.monotonic() < end:
                await _episode(this, cluster, random, writes - this.writes)
            await _look(this.laws)
        except Broken as broken:
            this.broken = broken
    this.seconds = time.monotonic() - this.began
    return this


async def _episode(this: Run, cluster: Cluster, random: Random, most: int) -> None:
    family = this.family if this.family != EVERYTHING else random.choice(FAMILIES)
    if family in (PAYLOADS, NODE_OBJECTS):
        await _tokens(this, cluster, random, family, most)
    else:
        fields = _mixed(random) if family == EVERYTHING else OF_PODS[family]
        await _tenant(this, cluster, random, Tenant.drawn(f"t{this.writes}", random, fields, most))


def _mixed(random: Random) -> Mapping[str, Field]:
    every = list(chain.from_iterable(fields.items() for fields in OF_PODS.values()))
    return dict(random.sample(every, len(every) // 4))


async def _tenant(this: Run, cluster: Cluster, random: Random, tenant: Tenant) -> None:
    """Have all pods of a tenant made, asked about, bound, changed and deleted."""
    this.last.append(str(tenant))
    there, places = deque[Json](), _places(random, cluster, tenant)
    for number in range(tenant.pods):
        pod = cluster.create(EVIL, tenant.pod(number))
        there.append(pod)
        this.writes += 1
        if random.random() < tenant.asks and not _is_gated(pod):
            await _asked_about(this, cluster, pod, next(places), binds=tenant.binds)
        if random.random() < tenant.patches:
            cluster.patch(PODS, EVIL, pod["metadata"]["name"], tenant.status(number))
        while len(there) > tenant.keeps:
            cluster.delete(there.popleft())
        await _after(this, cluster, number, tenant.pods)
    for pod in there if random.random() < 0.5 else ():
        cluster.delete(pod)


async def _asked_about(this: Run, cluster: Cluster, pod: Json, names: list[str], *, binds: bool) -> None:
    assert this.laws is not None
    this.last.append(f"asked about {str(pod['metadata'])[:200]} on {names[:1]} of {len(names)}")
    if binds and this.bound < QUOTA:
        this.bound += _gpus(pod) if await this.laws.of_a_yes(pod, names) else 0
    else:
        await cluster.passing(pod, names)


def _places(random: Random, cluster: Cluster, tenant: Tenant) -> Iterator[list[str]]:
    names = cluster.of_tenants
    home = random.choice(names)
    rack = [name for name in names if name.split("-")[0] == home.split("-")[0]]
    while True:
        match tenant.place:
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
    assert this.laws is not None
    nodes = cluster.with_tokens
    patches = {
        node.name: payloads(random, node, cluster.honest) if kind == PAYLOADS else node_objects(random)
        for node in nodes
    }
    number_of_all = min(most, random.choice((200, 1000)))
    for number in range(number_of_all):
        name = nodes[number % len(nodes)].name
        patch = next(patches[name])
        this.last.append(f"patched {name} with {str(patch)[-200:]}")
        cluster.patch(NODES, "", name, patch)
        this.writes += 1
        await _after(this, cluster, number, number_of_all)
        if number % BATCH == BATCH - 1:
            await this.laws.of_pages()


async def _after(this: Run, cluster: Cluster, number: int, number_of_all: int) -> None:
    """Look whether the laws hold: those of calls after each batch, the others now and then."""
    assert this.laws is not None
    await asyncio.sleep(0)
    if number % BATCH == BATCH - 1:
        await this.laws.of_calls()
        await cluster.caught_up()
        await this.laws.of_the_loop()
        await this.laws.of_memory()
    if number == number_of_all - 1:
        await _look(this.laws)


async def _look(laws: Laws) -> None:
    looks: tuple[Callable[[], Awaitable[None]], ...] = (
        laws.of_sickness,
        laws.of_pods,
        laws.of_calls,
        laws.of_pages,
        laws.of_the_loop,
        laws.of_memory,
    )
    for look in looks:
        await look()


def _is_gated(pod: Json) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def _gpus(pod: Json) -> int:
    """Return what a pod that is bound takes of the quota."""
    limits = (container["resources"].get("limits") or {} for container in pod["spec"]["containers"])
    return max(1, sum(int(each.get(keys.GPU_RESOURCE, "0")) for each in limits))
