"""The last thousand decisions of this extender: what was chosen, how good it was, and what else there was.

In memory only, and only what this process bound itself: of several replicas the leader's knows, the others know what they bound
while they led.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from extender.inspect.inspection import Answer
from extender.kit.fair_table import FairTable

LIMIT: Final = 1_000


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best other node of those that kube-scheduler asked about last, as it was then."""

    node: str
    gb_per_s: float | None
    """Predicted; `None` for one GPU."""
    loss: float | None
    """To the pods to come, weighed by λ; `None` where it is not known."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A pod that was bound, and with what."""

    number: int
    """Counts from 1 in the order in which decisions were judged, and anew after a restart."""
    at: datetime
    """When the pod was bound."""
    namespace: str
    name: str
    uid: str
    node: str
    indexes: tuple[int, ...]
    """Of the GPUs, in ring order."""
    gb_per_s: float | None
    """Predicted; `None` for one GPU."""
    best_gb_per_s: float | None
    """Of the best set of so many GPUs if none on the node were held; `None` for one GPU."""
    loss: float | None
    """To the pods to come, weighed by λ; `None` where it is not known."""
    alternative: Alternative | None
    """`None` where kube-scheduler asked about no other node that the pod fitted on."""

    @property
    def line(self) -> str:
        """When it was, and how good, for people."""
        rate = (
            ""
            if self.gb_per_s is None
            else f"predicted {self.gb_per_s:.0f} GB/s (the node's best is {self.best_gb_per_s:.0f})"
        )
        loss = "" if self.loss is None else f"future pods lose {self.loss:.2f} points"
        return "; ".join(filter(None, (f"bound at {self.at:%Y-%m-%dT%H:%M:%SZ}", rate, loss)))

    @property
    def instead(self) -> str:
        """What it was preferred to, and what that would have cost, for people."""
        alternative = self.alternative
        if alternative is None:
            return "no other node is known that it fitted on then"
        rate = (
            ""
            if alternative.gb_per_s is None
            else f"predicted {_beside(alternative.gb_per_s, self.gb_per_s, 0, ' GB/s')}"
        )
        loss = (
            ""
            if alternative.loss is None
            else f"future pods would lose {_beside(alternative.loss, self.loss, 2, ' points')}"
        )
        return "; ".join(filter(None, (f"preferred to {alternative.node}", rate, loss)))


def _beside(there: float, here: float | None, digits: int, unit: str) -> str:
    """Return a figure and how far it is from that of the choice."""
    if here is None:
        return f"{there:.{digits}f}{unit}"
    more = round(there - here, digits)
    beside = f"{abs(more):.{digits}f} {'more' if more > 0 else 'less'}" if more else "as much"
    return f"{there:.{digits}f}{unit} ({beside})"


class DecisionPage(Answer):
    """Decisions, the newest first; `next` is what to ask for `after` to get older ones."""

    decisions: tuple[Decision, ...]
    next: int | None


class Decisions:
    """As many as are kept; the oldest of the namespace that has most makes room."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._kept = FairTable[int, Decision](limit)
        self.next_number = 1
        """What the next one is to be called."""

    def add(self, decision: Decision) -> None:
        """Keep one, which has the next number."""
        self._kept.put(decision.number, decision.namespace, decision)
        self.next_number = decision.number + 1

    def of(self, uid: str) -> Decision | None:
        """Return how a pod was decided about, where that is remembered; it was bound once."""
        return next((decision for decision in self._newest_first() if decision.uid == uid), None)

    def page(
        self, limit: int, after: int | None = None, where: Callable[[Decision], bool] = lambda decision: True
    ) -> DecisionPage:
        """Return the newest ones that `where` admits, or those of them older than number `after`."""
        older = (
            decision
            for decision in self._newest_first()
            if (after is None or decision.number < after) and where(decision)
        )
        decisions = tuple(islice(older, limit + 1))
        return DecisionPage(
            decisions=decisions[:limit], next=decisions[limit - 1].number if len(decisions) > limit else None
        )

    def _newest_first(self) -> Iterator[Decision]:
        return (decision for number in reversed(self._kept) if (decision := self._kept.get(number)))
