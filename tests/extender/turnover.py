"""A small cluster in which nothing stays: pods, groups and nodes come under ever new names, and go."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from extender.binding.release import ClaimTimers
from extender.binding.repair import Repairs
from extender.cluster.caches.agents import LABELS
from extender.cluster.objects.kinds import ContainerStatus, Node, ObjectMeta, Pod, PodStatus
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.kit.bounded import Bounded
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.extender.builders import args, at, claim, gpus, node, pod
from topology.annotations import keys
from topology.annotations.records import Ledger, encode_ledger
from topology.effort import finish

NODES = 8
GPUS = 4
PODS_PER_NODE = 40
"""Pods that come before the oldest node makes place for a new one."""
AGENTS = "gputopo-system"


class Turnover:
    """A replica's state, and the cluster that it hears of; one that is a standby is asked nothing."""

    def __init__(self, *, is_asked: bool) -> None:
        self.state = ClusterState(agent_namespace=AGENTS)
        self.attention = ClaimTimers()
        self.repairs = Repairs()
        self._feed = PodFeed(self.state)
        self._is_asked = is_asked
        self._names = [f"n{number}" for number in range(NODES)]
        self._pods: deque[Pod] = deque()
        self._count = 0
        self.state.nodes.replaced([_node(name) for name in self._names])
        self._feed.replaced([_agent(name) for name in self._names])

    def go_on(self, pods: int) -> None:
        """Let so many pods come, run, end and go."""
        for _ in range(pods):
            self._one_pod()
            self._count += 1
            if self._count % PODS_PER_NODE == 0:
                self._one_node()
            if self._count % 20 == 0:
                self._upkeep()

    def _one_pod(self) -> None:
        name, on = f"p{self._count}", self._names[self._count % NODES]
        gpu = _gpus(on)[self._count // NODES % GPUS]
        wants = {keys.GROUP: f"g{self._count // 2}", keys.GROUP_SIZE: "2", keys.GROUP_AFFINITY: "rack"}
        new = pod(name, wants=wants, cpu="1")
        self._feed.changed(new)
        if self._is_asked:
            asked, now = args(new, *self._names), at(self._count)
            filter_nodes(self.state, asked, now)
            prioritize_nodes(self.state, asked, now)
        self.state.nodes.changed(_node(on, claimed=(gpu, name), version=3 * self._count + 2))
        running = pod(name, on=on, placed=(gpu,), wants=wants, cpu="1", phase="Running", terminated=False, version=2)
        self._feed.changed(running)
        _ = self.state.views if self._is_asked else None
        self._feed.changed(pod(name, on=on, placed=(gpu,), wants=wants, phase="Succeeded", terminated=True, version=3))
        self.state.nodes.changed(_node(on, version=3 * self._count + 3))
        self._feed.deleted(pod(name, on=on, placed=(gpu,), wants=wants, phase="Succeeded", terminated=True, version=4))

    def _one_node(self) -> None:
        old, new = self._names.pop(0), f"n{NODES + self._count // PODS_PER_NODE}"
        self._names.append(new)
        self.state.nodes.deleted(_node(old))
        self._feed.deleted(_agent(old))
        self.state.nodes.changed(_node(new))
        self._feed.changed(_agent(new))

    def _upkeep(self) -> None:
        now = float(self._count)
        finish(self.state.listening(now))
        self.attention.due(self.state, now)
        self.repairs.due(self.state, now)


def sizes(*roots: object) -> Counter[str]:
    """Count what all containers hold that can be reached from these, by class and attribute; and their bytes."""
    counted: Counter[str] = Counter()
    seen: set[int] = set()
    waiting: deque[tuple[str, object]] = deque((type(root).__name__, root) for root in roots)
    while waiting:
        place, item = waiting.pop()
        if id(item) in seen or isinstance(item, _LEAVES):
            continue
        seen.add(id(item))
        counted["bytes"] += sys.getsizeof(item)
        if isinstance(item, _CONTAINERS):
            counted[place] += len(item)
            inside = [*item.keys(), *item.values()] if isinstance(item, Mapping) else list(item)
            waiting.extend((f"{place}[]", each) for each in inside)
        elif isinstance(item, Bounded):
            waiting.append((place, item._entries))
        else:
            waiting.extend((f"{type(item).__name__}.{name}", value) for name, value in _attributes(item))
    return counted


_CONTAINERS = (dict, list, set, frozenset, tuple, deque, WeakValueDictionary)
_LEAVES = (str, bytes, int, float, type, ModuleType, FunctionType, MethodType)


def _attributes(item: object) -> Iterator[tuple[str, Any]]:
    slots = {name for each in type(item).__mro__ for name in getattr(each, "__slots__", ())}
    for name in slots.union(getattr(item, "__dict__", ())) - {"__weakref__", "__dict__"}:
        if hasattr(item, name):
            yield name, getattr(item, name)


def _node(name: str, *, claimed: tuple[str, str] | None = None, version: int = 1) -> Node:
    base = _new_node(name)
    ledger = Ledger(version, (claim(*claimed),) if claimed else (), base.metadata.uid)
    annotations = {**(base.metadata.annotations or {}), keys.LEDGER: encode_ledger(ledger)}
    metadata = msgspec.structs.replace(base.metadata, resource_version=str(version), annotations=annotations)
    return msgspec.structs.replace(base, metadata=metadata)


@lru_cache(2 * NODES)
def _new_node(name: str) -> Node:
    return node(name, "t4-4", labels={"topology.kubernetes.io/rack": f"rack-of-{name}"}, cpu="8")


@lru_cache(2 * NODES)
def _gpus(name: str) -> tuple[str, ...]:
    return gpus(name, *range(GPUS), machine_name="t4-4")


def _agent(name: str) -> Pod:
    made = pod(f"agent-{name}", 0, on=name, terminated=False)
    metadata = ObjectMeta(
        name=f"agent-{name}", namespace=AGENTS, uid=f"agent-{name}", resource_version="1", labels=dict(LABELS)
    )
    status = PodStatus(phase="Running", container_statuses=[ContainerStatus("agent", ready=True)])
    return msgspec.structs.replace(made, metadata=metadata, status=status)
