"""For how long nothing but scheduling has held a pod back: one that had scheduling gates waits from when the last gate went.

No object tells when that was: kube-scheduler keeps the time of the condition that the API server wrote at the creation. But
until it has tried the pod, the condition still says `SchedulingGated`. So each process takes note of the moment itself. A
process that begins after kube-scheduler has tried the pod counts from the creation.
"""

from __future__ import annotations

from extender.cluster.objects.gpu_pods import GpuPod, is_said_to_be_gated
from extender.cluster.objects.kinds import Pod
from extender.kit.clock import Instant


class Gates:
    """The pods that wait and have, or had, scheduling gates."""

    def __init__(self) -> None:
        self.queued: dict[str, GpuPod] = {}
        """By UID: the pods that wait in our own queue, perhaps behind gates of others, too."""
        self._held: set[str] = set()
        """UIDs of those with gates."""
        self._opened: set[str] = set()
        """UIDs of those whose gates have gone since the last call of `listen`."""
        self._since: dict[str, float] = {}
        """UID → when its gates had gone, in monotonic seconds."""

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take note of the newest version of a pod; `None`: it is gone."""
        self.queued.pop(uid, None)
        if pod is not None and pod.has_plan_gate:
            self.queued[uid] = pod
        if pod is None or pod.node:
            self._held.discard(uid)
            self._opened.discard(uid)
            self._since.pop(uid, None)
        elif pod.pod.spec.scheduling_gates:
            self._held.add(uid)
        elif uid in self._held or (is_said_to_be_gated(pod.pod) and uid not in self._since):
            self._held.discard(uid)
            self._opened.add(uid)

    def listen(self, now: float) -> None:
        """Take `now` (monotonic seconds) for the moment when gates went that were there at the last call."""
        self._since |= dict.fromkeys(self._opened, now)
        self._opened.clear()

    def waited_seconds(self, pod: Pod, now: Instant) -> float:
        """Return for how long nothing but scheduling has held the pod back, as far as this process knows."""
        age_seconds, uid = now.age_seconds(pod.metadata.creation_timestamp), pod.metadata.uid
        if uid in self._since:
            return min(age_seconds, max(0.0, now.monotonic - self._since[uid]))
        is_held = uid in self._held or uid in self._opened or pod.spec.scheduling_gates or is_said_to_be_gated(pod)
        return 0.0 if is_held else age_seconds
