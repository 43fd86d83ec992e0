"""Chooses the pod or gang that gets room next: one namespace after the other, and less often after each failure. No I/O.

A tenant chooses how many pods wait, and what they request. So one pod is chosen at a time, of those at the head of the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod, owner_of
from extender.cluster.objects.kinds import ObjectMeta
from extender.cluster.state import ClusterState
from extender.features.moves.limits import MoveLimits
from extender.features.moves.movable import is_alone
from extender.features.moves.settings import MovesSettings
from extender.kit.backoff import Backoff, Pauses
from extender.kit.clock import Instant
from extender.kit.fair_table import FairTable
from extender.planning.units import PendingPod, Unit
from extender.verbs.pod_context import PodContext
from topology.effort import Search
from topology.errors import RequestError

LOOKED_AT: Final = 2000
"""Pods of the queue that have no room."""
AT_ONCE: Final = 64
"""Of these, in one step: less than a millisecond."""
PAUSE_SECONDS: Final = 30.0
"""After a search in vain, or a plan that was given up, for pods of the same owner; each further one is twice as long."""
LONGEST_PAUSE_SECONDS: Final = 1800.0
NAMESPACES: Final = 1000
MOST_MEMBERS: Final = 64
"""Of a gang that gets room."""


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

    def next_unit(
        self,
        without_room: Iterable[str],
        gang_of: Callable[[str], Unit | None],
        under_way: Mapping[str, str],
        now: Instant,
    ) -> Search[Unit | None]:
        """Return the pod or gang whose turn it is, and count its namespace as served.

        Args:
            without_room: UIDs of the pods that wait in vain, in the order in which they are served.
            gang_of: Returns the gang of such a pod.
            under_way: Key → namespace of what has a plan; at most half of all plans are for one namespace.
            now: This moment.

        """
        plans, stand_ins = Counter(under_way.values()), self.state.indexes.stand_ins.by_pod()
        most = max(1, self.settings.at_once // 2)
        first, looked_at = dict[str, Unit](), set(under_way)
        for number, uid in enumerate([*islice(without_room, LOOKED_AT)]):
            if number % AT_ONCE == AT_ONCE - 1:
                yield
            pod, gang = self.state.pods.get(uid), gang_of(uid)
            key = gang.key if gang else uid
            if pod is None or key in looked_at or pod.key[0] in first or plans[pod.key[0]] >= most:
                continue
            looked_at.add(key)
            unit = self._alone(pod, now, stand_ins) if gang is None else self._gang(gang, now, stand_ins)
            if unit is not None:
                first[pod.key[0]] = unit
            if gang is not None:
                yield
        if not first:
            return None
        namespace = min(first, key=lambda name: self._served.get(name) or 0.0)
        self._served.put(namespace, namespace, now.monotonic)
        return first[namespace]

    def in_vain(self, waiting: ObjectMeta, now: float) -> None:
        """Let others come first for a while."""
        pod = self.state.pods.get(waiting.uid)
        if pod is not None:
            self._pauses.failed(_key(pod), now, pod.key[0])

    def came_true(self, waiting: ObjectMeta) -> None:
        """Take note that a plan has come true: the next failure is the first one again."""
        pod = self.state.pods.get(waiting.uid)
        if pod is not None:
            self._pauses.forget(_key(pod))

    def _alone(self, pod: GpuPod, now: Instant, stand_ins: Container[str]) -> Unit | None:
        """Return a single pod as a unit, if room may be looked for."""
        if not self._may_begin(pod, now, stand_ins) or self.state.indexes.groups.has_peers(pod.uid):
            return None
        try:
            context = PodContext.read(self.state, pod.pod, now)
        except RequestError:
            return None
        wanted = PendingPod(pod.pod, context.request, tuple(context.away(self.state)))
        return Unit.alone(wanted) if is_alone(context) else None

    def _gang(self, gang: Unit, now: Instant, stand_ins: Container[str]) -> Unit | None:
        """Return a gang, if all of its pods are there and room may be looked for."""
        if len(gang.members) > MOST_MEMBERS:
            return None
        pods = [self.state.pods.get(member.pod.metadata.uid) for member in gang.members]
        return gang if all(pod and self._may_begin(pod, now, stand_ins) for pod in pods) else None

    def _may_begin(self, pod: GpuPod, now: Instant, stand_ins: Container[str]) -> bool:
        """Whether a pod may get room; one with a stand-in has a node on its way."""
        return (
            bool(pod.gpus or pod.shares)
            and pod.uid not in stand_ins
            and pod.awaits_plan
            and now.age_seconds(pod.pod.metadata.creation_timestamp) >= self.settings.after
            and self._pauses.may_begin(_key(pod), now.monotonic)
            and self.limits.may_ask(pod.key[0], now.monotonic)
            and not self.state.holds.firm_of(pod.uid, now.monotonic)
        )


def _key(pod: GpuPod) -> str:
    return owner_of(pod.pod) or pod.uid
