"""Since when the reports of a node's agent are about a pod, and no longer about a namesake that was there before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _First:
    entry: frozenset[str]
    writes: int
    is_new: bool = False


class FirstReports:
    """Since when the reports of a node are about a pod: counted from the first version of the pod that was bound there."""

    def __init__(self) -> None:
        self._first: dict[str, _First] = {}

    def is_about(self, uid: str, entry: frozenset[str], writes: int) -> bool:
        """Whether a report is of a look at this very pod.

        It is if it says something else of that name than the report that was there when the pod was bound. Otherwise it
        is after two more writes, because the first of them may have been under way by then.

        Args:
            uid: The pod, which is bound to the node.
            entry: The GPUs that the report names for a pod of its name.
            writes: The report's count of the agent's writes.

        """
        first = self._first.get(uid)
        if first is None or (writes < first.writes and not first.is_new):
            first = self._first[uid] = _First(entry, writes)
        first.is_new = first.is_new or entry != first.entry or writes >= first.writes + 2
        return first.is_new

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._first.pop(uid, None)
