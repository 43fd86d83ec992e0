"""Chooses the pod for which room is looked for next: one namespace after the other, and less often after each failure. No I/O.

A tenant chooses how many pods wait, and what they request. So one pod is chosen at a time, of those at the head of the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod, owner_of
from extender.cluster.state import ClusterState
from extender.features.moves.limits import MoveLimits
from extender.features.moves.settings import MovesSettings
from extender.kit.backoff import Backoff, Pauses
from extender.kit.clock import Instant
from extender.kit.fair_table import FairTable
from topology.effort import Search

LOOKED_AT: Final = 2000
"""Pods of the queue that have no room."""
AT_ONCE: Final = 64
"""Of these, in one step: less than a millisecond."""
PAUSE_SECONDS: Final = 30.0
"""After a search in vain, or a plan that was given up, for pods of the same owner; each further one is twice as long."""
LONGEST_PAUSE_SECONDS: Final = 1800.0
NAMESPACES: Final = 1000


@dataclass(slots=True)
class WaitingTurns:
    """Whose turn it is, of the pods that have no room."""

    state: ClusterState
    settings: MovesSettings
    limits: MoveLimits
    _pauses: Backoff = field(default_factory=lambda: Backoff(Pauses(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)))
    """By owner, or by the pod's UID where it has none."""
    _served: FairTable[str, float] = field(default_factory=lambda: FairTable(NAMESPACES))
    """Namespace → when its last turn was, in monotonic seconds."""

    def next_pod(
        self, without_room: Iterable[str], under_way: Mapping[str, str], now: Instant
    ) -> Search[GpuPod | None]:
        """Return the pod whose turn it is, and count its namespace as served.

        Args:
            without_room: UIDs of the pods that wait in vain, in the order in which they are served.
            under_way: UID → namespace of the pods that have a plan; at most half of all plans are for one namespace.
            now: This moment.

        """
        plans, stand_ins = Counter(under_way.values()), self.state.indexes.stand_ins.by_pod()
        most = max(1, self.settings.at_once // 2)
        first = dict[str, GpuPod]()
        for number, uid in enumerate([*islice(without_room, LOOKED_AT)]):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            pod = self.state.pods.get(uid)
            if not pod or uid in under_way or pod.key[0] in first or plans[pod.key[0]] >= most:
                continue
            if uid not in stand_ins and self._may_begin(pod, now):  # else a node is on its way to it
                first[pod.key[0]] = pod
        if not first:
            return None
        namespace = min(first, key=lambda name: self._served.get(name) or 0.0)
        self._served.put(namespace, namespace, now.monotonic)
        return first[namespace]

    def in_vain(self, pod: GpuPod, now: float) -> None:
        """Let others come first for a while."""
        self._pauses.failed(_key(pod), now, pod.key[0])

    def _may_begin(self, pod: GpuPod, now: Instant) -> bool:
        waited = now.age_seconds(pod.pod.metadata.creation_timestamp)
        is_single = bool(pod.gpus) and not (pod.profile or pod.shares or self.state.indexes.groups.has_peers(pod.uid))
        return (
            is_single
            and pod.awaits_plan
            and waited >= self.settings.after
            and self._pauses.may_begin(_key(pod), now.monotonic)
            and self.limits.may_ask(pod.key[0], now.monotonic)
            and not self.state.holds.firm_of(pod.uid, now.monotonic)
        )


def _key(pod: GpuPod) -> str:
    return owner_of(pod.pod) or pod.uid
