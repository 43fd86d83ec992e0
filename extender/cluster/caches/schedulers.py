"""Which scheduler has placed each pod with GPUs; those that do not ask us race with us for what they count as free."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import Pod
from extender.config.defaults import SCHEDULER_NAME


class Schedulers:
    """The pods with GPUs that are bound and have not ended, by the name of their scheduler.

    Args:
        ours: The names of the schedulers that ask us; none: nothing is known of that.

    """

    def __init__(self, ours: Collection[str] = (SCHEDULER_NAME,)) -> None:
        self.ours = tuple(ours)
        self._placed: dict[str, dict[str, str]] = {}
        """Scheduler → UID → node."""
        self._of: dict[str, str] = {}

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take note of the newest version of a pod; `None`: it is gone."""
        before = self._of.pop(uid, None)
        if before is not None:
            del self._placed[before][uid]
            if not self._placed[before]:
                del self._placed[before]
        name = pod.pod.spec.scheduler_name if pod else None
        # Claims that a feature allocates direct a pod whatever its scheduler.
        if pod and pod.node and name and not pod.ended and not pod.claimed:
            self._placed.setdefault(name, {})[uid] = pod.node
            self._of[uid] = name

    def another(self, pod: Pod) -> str | None:
        """Return the scheduler that a pod names, if that one does not ask us."""
        name = pod.spec.scheduler_name
        return name if name and self.ours and name not in self.ours else None

    def placed_by_others(self) -> Iterator[tuple[str, str]]:
        """Yield scheduler and node of each pod that a scheduler has placed that does not ask us; linear in those."""
        for name, placed in self._placed.items():
            if name not in self.ours:
                yield from ((name, node) for node in placed.values())
