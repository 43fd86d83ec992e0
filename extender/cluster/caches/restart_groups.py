"""Which pods restart together, as one replica of a LeaderWorkerSet does."""

from __future__ import annotations

from collections.abc import Set

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.group_words import restart_group_of


class RestartGroups:
    """Restart group → its pods with GPUs that have not ended, bound or not."""

    def __init__(self) -> None:
        self._members: dict[str, set[str]] = {}
        self._group_of: dict[str, str] = {}

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take note of the newest version of a pod; `None`: it is gone."""
        group = restart_group_of(pod.pod) if pod is not None and not pod.ended else ""
        before = self._group_of.pop(uid, "")
        if before and before != group:
            self._members[before].discard(uid)
            if not self._members[before]:
                del self._members[before]
        if group:
            self._group_of[uid] = group
            self._members.setdefault(group, set()).add(uid)

    def members(self, group: str) -> Set[str]:
        """Return the UIDs of its pods."""
        return self._members.get(group, frozenset())
