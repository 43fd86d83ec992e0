"""Which unbound pods must be fenced before a node without a ledger that can be relied on gets one.

What a lost ledger said is not known for certain, and a node that has none may have had one under the same name before. So any
unbound pod may have had a claim there, and a Binding under way. So the pods that may be bound yet are listed live, in one
consistent list. It counts for every ledger that was lost before it was asked for. Once each of these pods has been
fenced, or has changed by itself, none of those Bindings can commit. Then nothing is lost by a ledger that holds only the
bound pods.

A ledger counts as lost when the node was first found without it, as long as nothing else was there in any version since.
Versions of one node may not have been heard of, or the node left with its ledger. That counts for its name alone, also
for a later node of that name. A gap in what is heard of all nodes counts for every name. A node that never had a ledger,
in all the versions of which we have heard, lost it before the gap. The order of events is counted, not timed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.payloads import Payload
from topology.annotations.records import Ledger

MAX_NAMES = 10_000
"""Of nodes that left since the last such list; of more, all names count."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a claim or a ledger has to wait: a pod that could not be fenced, or, without one, the list of those that wait."""

    pod: Pod | None
    reason: str

    @property
    def name(self) -> str:
        """Namespace and name of the pod; empty without one."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}" if self.pod else ""


class Fences:
    """Counts moments: of ledgers that were lost, of gaps, and of consistent lists."""

    def __init__(self) -> None:
        self._moment = 0
        self._lost: dict[str, tuple[Payload[Ledger] | None, int]] = {}
        """Node → what is there instead of a ledger, and the moment when that was found; nothing: it never had one."""
        self._gap = 0
        """When versions of any node may have been missed: any name may have had a ledger before."""
        self._gaps: dict[str, int] = {}
        """Name → the same of this one alone; those from before the last list that was cleared are left out."""
        self._listed_at = 0
        self._cleared = 0
        """When the last list was asked for of which nobody is left to be fenced."""
        self._to_fence: dict[str, Pod] = {}
        self._obstacles: dict[str, Obstacle] = {}
        """By UID of the pod."""

    def lost(self, node: str, ledger: Payload[Ledger] | None) -> None:
        """Take note of what is found on a node instead of its ledger, if that is news; `None`: it never had one."""
        if node not in self._lost or self._lost[node][0] is not ledger:
            self._lost[node] = ledger, 0 if ledger is None else self.now()

    def mended(self, node: str) -> None:
        """Take note that a node's ledger is whole, or that the node is gone."""
        self._lost.pop(node, None)

    def missed(self, node: str | None = None) -> None:
        """Take note that something about a node may not have been heard, or that it is gone with its ledger.

        `None` is any node.
        """
        if node is None:
            self._gap = self.now()
            return
        self._gaps[node] = self.now()
        if len(self._gaps) > MAX_NAMES:
            self._gap = self.now()
            self._gaps.clear()

    def now(self) -> int:
        """Return a moment later than all before; take it before a list is asked for."""
        self._moment += 1
        return self._moment

    def is_needed(self, node: str) -> bool:
        """Whether a Binding may be under way for which the node's lost ledger had a claim."""
        return node in self._lost and self._cleared <= max(self._gap, self._gaps.get(node, 0), self._lost[node][1])

    @property
    def to_fence(self) -> tuple[Pod, ...]:
        """The pods still to be fenced, each in the version that was listed."""
        return tuple(self._to_fence.values())

    def listed(self, sent: int, pods: Iterable[Pod]) -> None:
        """Take note of all pods that may be bound, as a live list has shown them that was asked for at that moment."""
        self._listed_at, self._to_fence = sent, {pod.metadata.uid: pod for pod in pods}
        self._clear_if_done()

    def left(self, pod: Pod) -> None:
        """Take note that a pod is not in the listed version any more; if they were listed again since, that says nothing."""
        if self._to_fence.get(pod.metadata.uid) is pod:
            del self._to_fence[pod.metadata.uid]
            self._clear_if_done()

    def stays(self, pod: Pod, reason: str) -> None:
        """Take note that a pod could not be fenced; if it is still to be fenced, all others come before it from now on."""
        uid = pod.metadata.uid
        if self._to_fence.get(uid) is pod:
            self._to_fence[uid] = self._to_fence.pop(uid)
        self._obstacles[uid] = Obstacle(pod, reason)

    def not_listed(self, reason: str) -> None:
        """Take note that the pods that wait could not be listed."""
        self._obstacles[""] = Obstacle(None, reason)

    def take_obstacles(self) -> tuple[Obstacle, ...]:
        """Return what was in the way since the last call."""
        obstacles, self._obstacles = self._obstacles, {}
        return tuple(obstacles.values())

    def _clear_if_done(self) -> None:
        if not self._to_fence:
            self._cleared = self._listed_at
            self._gaps = {name: moment for name, moment in self._gaps.items() if moment >= self._cleared}
