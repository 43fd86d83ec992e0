"""Which unbound pods have been fenced since a node's ledger was found broken, in the version of the node that it is in now.

What a lost ledger said is not known for certain, so any unbound pod may have had a claim there, and a Binding under way. Once
each of them has been fenced none of those can commit, and nothing is lost by a ledger that holds the bound pods only. Between
two versions it may have been whole, and have broken again, without our hearing of it; so another version needs other fences. The
order of events is counted, not timed.
"""

from __future__ import annotations


class Fences:
    """Counts moments: of ledgers that broke, and of fences that were sent and then held."""

    def __init__(self) -> None:
        self._moment = 0
        self._broken: dict[str, tuple[str, int]] = {}
        """Node → its version, and the moment when that one was found broken."""
        self._fenced: dict[str, int] = {}

    def broke(self, node: str, version: str) -> None:
        """Take note that a node's ledger is broken in this version of the node, if that is news."""
        if node not in self._broken or self._broken[node][0] != version:
            self._broken[node] = version, self.now()

    def mended(self, node: str) -> None:
        """Take note that a node's ledger is whole, or that the node is gone."""
        self._broken.pop(node, None)

    def now(self) -> int:
        """Return a moment later than all before; take it before a fence is sent."""
        self._moment += 1
        return self._moment

    def held(self, uid: str, sent: int) -> None:
        """Take note that the fence of a pod, sent at that moment, has been confirmed."""
        self._fenced[uid] = max(sent, self._fenced.get(uid, 0))

    def is_needed(self, node: str, uid: str) -> bool:
        """Whether a pod has not been fenced since the node's ledger was found broken as it is now."""
        return self._fenced.get(uid, 0) <= self._broken.get(node, ("", 0))[1]

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._fenced.pop(uid, None)
