"""Why pods of the queue have no plan, as of the last one. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.features.queue.series import by_largest
from extender.features.queue.waiting import NotPlanned
from extender.planning.units import Unit


@dataclass(slots=True)
class WaitReasons:
    """By UID, in the order in which the pods are served; newcomers come last."""

    state: ClusterState
    _of: dict[str, NotPlanned] = field(default_factory=dict)

    def __contains__(self, uid: object) -> bool:
        """Whether there is one for a pod."""
        return uid in self._of

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._of)

    def __iter__(self) -> Iterator[tuple[GpuPod, NotPlanned]]:
        """Yield the pods that are still there, each with its reason."""
        queued = self.state.indexes.gates.queued
        return ((queued[uid], why) for uid, why in self._of.items() if uid in queued)

    def are(self, reasons: Mapping[str, NotPlanned]) -> None:
        """Take those of a plan for all pods."""
        self._of = {**reasons}

    def are_of(self, pods: Iterable[GpuPod], reasons: Mapping[str, NotPlanned]) -> None:
        """Take those of a plan for some pods."""
        for pod in pods:
            self._of.pop(pod.uid, None)
        self._of |= reasons

    def without_room(self) -> Iterator[str]:
        """Yield the pods for which there is no room."""
        return (uid for uid, reason in self._of.items() if reason.is_without_room)

    def gang_of(self, uid: str) -> Unit | None:
        """Return the gang of a pod without room."""
        reason = self._of.get(uid)
        return reason.gang if reason else None

    def by_reason(self) -> Mapping[str, float]:
        """Return how many pods wait for each reason."""
        return Counter(why.why.value for _, why in self)

    def by_namespace(self) -> Mapping[str, float]:
        """Return how many pods of each namespace wait."""
        return by_largest(Counter(pod.key[0] for pod, _ in self))
