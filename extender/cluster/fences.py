"""Which unbound pods must be fenced before a node without a ledger that can be relied on gets one.

What a lost ledger said is not known for certain, and a node that has none may have had one under the same name before. So any
unbound pod may have had a claim there, and a Binding under way. A roll is called: a live list of the pods that may be bound yet,
which counts for every ledger that was lost before it was asked for. Once each of them has been fenced, or has changed by itself,
none of those Bindings can commit, and nothing is lost by a ledger that holds the bound pods only.

A ledger counts as lost when the node was first found without it, as long as nothing else was there in any version since; a
version that was not heard of is a gap, after which every ledger counts as lost anew. A node that never had one, in all the
versions of which we have heard, lost it before the gap. The order of events is counted, not timed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from extender.cluster.objects import Pod
from extender.cluster.payloads import Payload
from topology.records import Ledger


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A pod of the roll that may not be fenced, and who says so."""

    pod: Pod
    reason: str


class Fences:
    """Counts moments: of ledgers that were lost, of gaps, and of rolls that were called."""

    def __init__(self) -> None:
        self._moment = 0
        self._lost: dict[str, tuple[Payload[Ledger] | None, int]] = {}
        """Node → what is there instead of a ledger, and the moment when that was found; nothing: it never had one."""
        self._gap = 0
        """When versions of nodes may have been missed, or a node left: any name may have had a ledger before."""
        self._called = 0
        self._cleared = 0
        """When the last roll was called on which nobody is left."""
        self._roll: dict[str, Pod] = {}
        self.obstacle: Obstacle | None = None
        """What the roll waits for, as far as that is known."""

    def lost(self, node: str, found: Payload[Ledger] | None) -> None:
        """Take note of what is found on a node instead of its ledger, if that is news; `None`: it never had one."""
        if node not in self._lost or self._lost[node][0] is not found:
            self._lost[node] = found, 0 if found is None else self.now()

    def mended(self, node: str) -> None:
        """Take note that a node's ledger is whole, or that the node is gone."""
        self._lost.pop(node, None)

    def missed(self) -> None:
        """Take note that something about nodes may not have been heard, or that a node is gone with its ledger."""
        self._gap = self.now()

    def now(self) -> int:
        """Return a moment later than all before; take it before a list is asked for."""
        self._moment += 1
        return self._moment

    def is_needed(self, node: str) -> bool:
        """Whether a Binding may be under way for which the node's lost ledger had a claim."""
        return node in self._lost and self._cleared <= max(self._gap, self._lost[node][1])

    @property
    def roll(self) -> tuple[Pod, ...]:
        """The pods still to be fenced, each in the version that was listed."""
        return tuple(self._roll.values())

    def called(self, sent: int, pods: Iterable[Pod]) -> None:
        """Take note of all pods that may be bound, as a live list has shown them that was asked for at that moment."""
        self._called, self._roll = sent, {pod.metadata.uid: pod for pod in pods}
        self.obstacle = None
        self._strike()

    def left(self, pod: Pod) -> None:
        """Take note that a pod is not in the listed version any more; if another roll was called since, that says nothing."""
        if self._roll.get(pod.metadata.uid) is pod:
            del self._roll[pod.metadata.uid]
            self.obstacle = None
            self._strike()

    def refused(self, pod: Pod, reason: str) -> None:
        """Take note that a pod of the roll may not be fenced."""
        self.obstacle = Obstacle(pod, reason)

    def _strike(self) -> None:
        if not self._roll:
            self._cleared = self._called
