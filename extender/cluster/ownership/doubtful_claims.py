"""Claims of which this process does not know whether they were written: the request got no answer, and may still arrive.

It cannot succeed any more once the node has another ledger than the one that it was to replace.
"""

from __future__ import annotations

from collections.abc import Callable


class DoubtfulClaims:
    """By pod (UID): the nodes, each with the text of the ledger that was to be replaced."""

    def __init__(self) -> None:
        self._replaced: dict[str, dict[str, str | None]] = {}

    def add(self, uid: str, node: str, replaced: str | None) -> None:
        """Take note of a claim without an answer."""
        self._replaced.setdefault(uid, {})[node] = replaced

    def on(self, uid: str, ledger_of: Callable[[str], str | None]) -> list[str]:
        """Return the nodes that may get such a claim yet; `ledger_of` returns the text of a node's newest ledger."""
        return [node for node, replaced in self._replaced.get(uid, {}).items() if ledger_of(node) == replaced]

    def forget(self, uid: str) -> None:
        """Forget those of a pod that is bound, or gone."""
        self._replaced.pop(uid, None)
