"""C23: what the extenders are told of each node's ledger is what one register could have told them.

Recorded are the calls and answers of all extenders, and what others wrote at the moment when they wrote it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from math import inf
from typing import Any

from benchmarks.simulated.double.resources import NODES, Object
from benchmarks.simulated.double.store import StoreChange
from extender.binding.intents import Done, GetNode, Gone, Intent, NoAnswer, Reply, SwapLedger
from extender.cluster.objects.kinds import Node
from tests.simulation.invariants.linearizability import Operation, Value, is_linearizable
from tests.simulation.trace import Trace
from tests.simulation.wording import annotations_of
from tests.simulation.world.server import Server
from topology.annotations import keys


class Registers:
    """One history per node."""

    def __init__(self, server: Server, trace: Trace, clock: Callable[[], float]) -> None:
        self._trace = trace
        self._clock = clock
        self._histories: dict[str, list[Operation]] = defaultdict(list)
        self._ledgers: dict[tuple[str, str], str | None] = {}
        """What a node's ledger was in one of the node's versions."""
        self._called: dict[asyncio.Task[Any] | None, tuple[Intent, float]] = {}
        server.ears.append(self._hear)

    def asks(self, intent: Intent) -> None:
        """Take note of a call; a task has one at a time."""
        self._called[asyncio.current_task()] = intent, self._clock()

    def hears(self, reply: Reply) -> None:
        """Take note of its answer; one that says nothing of the ledger is passed over."""
        intent, called = self._called.pop(asyncio.current_task())
        match intent, reply:
            case GetNode(name), Done(Node() as node):
                seen = node.metadata.uid, (node.metadata.annotations or {}).get(keys.LEDGER)
                self._histories[name].append(Operation(called, self._clock(), seen, seen))
            case GetNode(name), Gone():
                self._histories[name].append(Operation(called, self._clock(), None, None))
            case SwapLedger(), Done():
                self._histories[intent.node].append(self._swap(intent, called, self._clock()))
            case SwapLedger(), NoAnswer():
                self._histories[intent.node].append(self._swap(intent, called, inf))

    def check(self) -> None:
        """C23, for each node, at the end."""
        for intent, called in self._called.values():
            if isinstance(intent, SwapLedger):
                self._histories[intent.node].append(self._swap(intent, called, inf))
        for node, history in sorted(self._histories.items()):
            self._trace.count("history: of a node's ledger")
            if not is_linearizable(history):
                self._trace.violation("C23", f"no order of {len(history)} operations on {node}'s ledger explains them")

    def _swap(self, intent: SwapLedger, called: float, answered: float) -> Operation:
        """Return what a swap does; one that expects nothing rests on a version of the node, and on what it said then."""
        uid, node = intent.node_uid, intent.node
        was = intent.expected or self._ledgers.get((node, intent.resource_version))
        return Operation(called, answered, (uid, was), (uid, intent.ledger))

    def _hear(self, writer: str, change: StoreChange) -> None:
        before, after = _value(change.before), _value(change.after)
        if change.resource is NODES and after is not None:
            self._ledgers[change.key[1], str(change.resource_version)] = after[1]
        if change.resource is NODES and before != after and not writer.startswith("extender"):
            now = self._clock()
            self._histories[change.key[1]].append(Operation(now, now, before, after, blind=True))


def _value(node: Object | None) -> Value:
    return None if node is None else (node["metadata"]["uid"], annotations_of(node).get(keys.LEDGER))
