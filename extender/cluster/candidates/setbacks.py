"""Which nodes step back because a pod was not bound there after they had won it, so that others get their turn.

kube-scheduler tells nobody that a volume, a webhook or the kubelet has refused a pod on the winner. It only asks again, and the
same node would win for ever. Three things tell: a bind that failed, the same pod again without a bind, and a pod that
ended before it started. The last one counts for the next pod of its owner. This is advice: it expires, and never turns a
yes into a no.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from extender.kit.backoff import Pauses
from extender.kit.bounded import Bounded
from extender.kit.fair_table import FairTable

FIRST_SECONDS: Final = 30.0
"""For which a node steps back; longer than kube-scheduler's longest backoff, and twice as long each time it fails again."""
MAX_SECONDS: Final = 480.0
_PAUSES: Final = Pauses(FIRST_SECONDS, MAX_SECONDS)
SAME_ATTEMPT_SECONDS: Final = 0.5
"""kube-scheduler waits a second at least after a failure. A pod that is back sooner is in the same attempt. The nominated
node is asked about first, and the placements of a pod group are tried on."""
LIMIT: Final = 10_000
"""Pods and owners, shared between namespaces; a forgotten one merely starts with the best node again."""
NODES: Final = 64
"""Of one pod or owner that are remembered."""


@dataclass(frozen=True, slots=True)
class Setback:
    """What one node has done to one pod, or to the pods of one owner."""

    until: float
    """Monotonic seconds."""
    failures: int
    """In a row: the next one lasts longer."""
    passed_over: bool = False
    """The node was refused once where it alone was asked about."""

    def is_remembered(self, now: float) -> bool:
        """Whether the next one counts on from it: for as long again as it lasted."""
        return now < self.until + _PAUSES.after(self.failures)


@dataclass(slots=True)
class _Memory:
    """Of one pod, or of one owner."""

    winner: tuple[str, float] | None = None
    """The node that was announced, and since when it is."""
    setbacks: Bounded[str, Setback] = field(default_factory=lambda: Bounded(NODES))
    """By node, the newest last."""
    unstarted_on: set[str] = field(default_factory=set)
    """Nodes on which a pod ended before it started, since the last call for a pod of the owner."""


class Setbacks:
    """Per pod, by UID, and per owner, by namespace and UID."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._memories = FairTable[str, _Memory](limit)
        self._ended: set[str] = set()
        """Pods of which it is known, for as long as they exist, that they ended before they started."""

    def announce(self, uid: str, node: str, now: float, namespace: str = "") -> None:
        """Take note that the node has won the pod; `namespace` is the pod's."""
        memory = self._memory(uid, namespace)
        if memory.winner is None or memory.winner[0] != node:
            memory.winner = node, now

    def come_back(self, uid: str, owner: str, now: float, namespace: str = "") -> None:
        """Take note that the pod is to be placed: if a node had won it, that came to nothing; `namespace` is the pod's."""
        memory, siblings = self._memories.get(uid), self._memories.get(owner)
        if memory and memory.winner and now - memory.winner[1] >= SAME_ATTEMPT_SECONDS:
            self.fail(uid, memory.winner[0], now, namespace)
        if siblings:
            for node in sorted(siblings.unstarted_on):
                self.fail(owner, node, now, _namespace_of(owner))
            siblings.unstarted_on.clear()

    def fail(self, uid: str, node: str, now: float, namespace: str = "") -> None:
        """Let the node step back, as it did not get the pod bound, or the owner's pod started; `namespace` is theirs."""
        memory = self._memory(uid, namespace)
        memory.winner = None
        for name in [name for name, past in memory.setbacks.items() if not past.is_remembered(now)]:
            memory.setbacks.pop(name)
        past = memory.setbacks.get(node)
        failures = past.failures + 1 if past else 1
        memory.setbacks.put(node, Setback(now + _PAUSES.after(failures), failures))

    def end_unstarted(self, uid: str, owner: str, node: str, *, is_news: bool) -> None:
        """Take note that a pod ended before any of its containers started, once for each pod."""
        if is_news and uid not in self._ended and owner:
            self._memory(owner, _namespace_of(owner)).unstarted_on.add(node)
        self._ended.add(uid)

    def away(self, uid: str, owner: str, now: float) -> list[str]:
        """Return the nodes that step back from the pod now, those first that will be back first."""
        until: dict[str, float] = {}
        for memory in filter(None, map(self._memories.get, (uid, owner))):
            for node, setback in memory.setbacks.items():
                if now < setback.until:
                    until[node] = max(setback.until, until.get(node, now))
        return sorted(until, key=lambda node: (until[node], node))

    def pass_over(self, uid: str, owner: str, node: str) -> bool:
        """Whether a node that steps back may be refused where it alone is asked about: once per setback.

        kube-scheduler asks about the nominated node alone, and then about all that are left. Where that is the same one, the
        second answer has to be yes.
        """
        passed_over = False
        for memory in filter(None, map(self._memories.get, (uid, owner))):
            setback = memory.setbacks.get(node)
            if setback and not setback.passed_over:
                memory.setbacks.replace(node, replace(setback, passed_over=True))
                passed_over = True
        return passed_over

    def settle(self, uid: str) -> None:
        """Take note that whatever keeps the pod from being bound is not the node."""
        if memory := self._memories.get(uid):
            memory.winner = None

    def forget(self, uid: str, *, is_gone: bool = False) -> None:
        """Drop what is known of a pod, which is bound or gone."""
        self._memories.pop(uid)
        if is_gone:
            self._ended.discard(uid)

    def __len__(self) -> int:
        """Return how many pods and owners are remembered."""
        return len(self._memories)

    def _memory(self, uid: str, namespace: str) -> _Memory:
        memory = self._memories.get(uid) or _Memory()
        self._memories.put(uid, namespace, memory)
        return memory


def _namespace_of(owner: str) -> str:
    return owner.partition("/")[0]
