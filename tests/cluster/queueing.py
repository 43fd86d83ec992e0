"""Gangs of the queue on a real cluster: created, watched until they are whole, and ended then, while nodes leave."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

from benchmarks.simulated.fleet import SimulatedNode
from benchmarks.simulated.pod_life import has_ended
from tests.cluster.api import ApiError
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.objects import GPU, NODES, PODS, Json
from tests.world.invariants import double_bookings, is_live, placements
from topology.annotations import keys

OURS: Final = {"name": keys.PLAN_GATE}
SETTINGS: Final = {"queue": {"enabled": True}}
PLAIN: Final = "plain"
"""A scheduler that knows of no extender."""
_MACHINE, _GPUS_OF_NODE = "hgx-h100", 8


def gang(name: str, pods: int, gpus: int, scheduler: str) -> list[Json]:
    """Return the members of a gang, behind our gate."""
    words = (f"group: {name}", f"group-size: {pods}", "gang: required")
    numbers = range(pods)
    return [
        wants(f"{name}-{number}", gpus, *words, schedulerName=scheduler, schedulingGates=[OURS]) for number in numbers
    ]


def named(pods: Sequence[Json]) -> list[str]:
    """Return their names."""
    return [pod["metadata"]["name"] for pod in pods]


@dataclass(slots=True)
class ManyGangs:
    """Random gangs, some of which wait at any time; a gang ends once all its members are bound at the same time."""

    cluster: GpuCluster
    scheduler: str
    gangs: int
    largest: int
    """Pods of a gang."""
    at_once: int
    """Gangs that wait or start."""
    started: int = 0
    longest_half_seconds: float = 0.0
    """For which a gang was bound in parts, of those times in which it lost no member."""
    lost: int = 0
    """Pods that left with their nodes and were created again."""
    _random: Random = field(default_factory=lambda: Random(7))
    _waiting: dict[str, dict[str, Json]] = field(default_factory=dict)
    """Gang → its members as they were created, by name."""
    _half_since: dict[str, float] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)
    _nodes: list[str] = field(default_factory=list)
    _homes: set[str] = field(default_factory=set)
    """Nodes to which members went of gangs that were not whole at the last look."""
    _gone: set[str] = field(default_factory=set)
    _created: int = 0

    @property
    def is_over(self) -> bool:
        """Whether all gangs have started."""
        return self.started == self.gangs

    def join(self, nodes: int) -> None:
        """Let so many nodes join."""
        names = [f"n{next(self._numbers)}" for _ in range(nodes)]
        self.cluster.join(*(SimulatedNode(name, _MACHINE) for name in names))
        self._nodes += names

    @property
    def is_starting(self) -> bool:
        """Whether a gang that was not whole had members without a gate at the last look."""
        return bool(self._homes)

    def replace_node(self) -> None:
        """Let a node leave with its pods, one with members of a gang that is not whole if there is one; a new one joins."""
        node = self._random.choice(sorted(self._homes) or self._nodes)
        self._nodes.remove(node)
        self._homes.discard(node)
        self._gone.add(node)
        self.cluster.api.delete(f"{NODES}/{node}")
        self.join(1)

    def look(self) -> None:
        """See that no GPU has two pods, and do what users and controllers do: end gangs, replace lost pods, create more gangs."""
        pods = {pod["metadata"]["name"]: pod for pod in self.cluster.api.list(PODS)}
        live = {name: pod for name, pod in pods.items() if is_live(pod)}
        taken = Counter[str]()
        for pod in live.values():
            taken[pod["spec"]["nodeName"]] += int(pod["spec"]["containers"][0]["resources"]["limits"][GPU])
        assert max(taken.values(), default=0) <= _GPUS_OF_NODE
        assert [*double_bookings({owned for pod in live.values() for owned in placements(pod)}, {})] == []
        self._replace_lost(pods)
        for name, members in [*self._waiting.items()]:
            if members.keys() <= live.keys():
                self._end(name)
            else:
                self._measure_half(name, is_half=not members.keys().isdisjoint(live.keys()))
        waiting = {member for members in self._waiting.values() for member in members}
        self._homes = {node for name, pod in pods.items() if name in waiting and (node := _node_of(pod))} & {
            *self._nodes
        }
        for name, pod in pods.items():
            if has_ended(pod):
                self._remove(name)
        self._create(min(self.at_once - len(self._waiting), self.gangs - self._created))

    def _create(self, gangs: int) -> None:
        pods = list[Json]()
        for number in range(self._created, self._created + gangs):
            size, gpus = self._random.randint(2, self.largest), self._random.choice((1, 2, 4, 8))
            members = gang(f"g{number}", size, gpus, self.scheduler)
            self._waiting[f"g{number}"] = dict(zip(named(members), members, strict=True))
            pods += members
        self._created += gangs
        self._random.shuffle(pods)
        self.cluster.submit(*pods)

    def _end(self, name: str) -> None:
        for member in self._waiting.pop(name):
            self.cluster.complete(member)
        self._half_since.pop(name, None)
        self.started += 1

    def _measure_half(self, name: str, *, is_half: bool) -> None:
        if not is_half:
            self._half_since.pop(name, None)
            return
        now = time.monotonic()
        self.longest_half_seconds = max(self.longest_half_seconds, now - self._half_since.setdefault(name, now))

    def _replace_lost(self, pods: dict[str, Json]) -> None:
        for name, pod in pods.items():
            if _node_of(pod) not in self._gone:
                continue
            self._remove(name)
            group = pod["metadata"]["annotations"][keys.GROUP]
            if name in (members := self._waiting.get(group, {})):
                lost, new = members.pop(name), f"{group}-again-{self.lost}"
                members[new] = {**lost, "metadata": {**lost["metadata"], "name": new}}
                self.cluster.submit(members[new])
                self.lost += 1
                self._half_since.pop(group, None)

    def _remove(self, name: str) -> None:
        with suppress(ApiError):  # its kubelet was faster
            self.cluster.api.delete(f"{PODS}/{name}", gracePeriodSeconds="0")


def _node_of(pod: Json) -> str | None:
    """Return where a pod is bound or can only go."""
    if pod["spec"].get("schedulingGates"):
        return None
    node: str | None = pod["spec"].get("nodeName") or pod["metadata"]["annotations"].get(keys.PLANNED)
    return node
