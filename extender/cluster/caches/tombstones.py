"""What is remembered of pods that are no longer in the cache, as far as it proves anything about their GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import ObjectMeta
from extender.kit.bounded import Bounded

LIMIT = 10_000
"""A forgotten pod is an unseen one: its claims are looked up live, never just dropped."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The last that was seen of a pod."""

    key: tuple[str, str] = ("", "")
    """Namespace and name."""
    node: str | None = None
    """Where it was bound when last seen."""
    stopped: bool = False
    """Its containers had stopped for good when last seen."""
    gone: bool = False
    """A DELETED event, a live read or a namesake has shown that it is gone; a list without it has not."""
    final: bool = False
    """What was last seen is its very last version, as a DELETED event carries it."""

    def never_ran_on(self, node: str) -> bool:
        """Whether it is certain that the pod was never bound to `node`; a pod is bound once and for ever."""
        return self.final if self.node is None else self.node != node


class Tombstones:
    """The newest tombstones, by UID."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._tombstones = Bounded[str, Tombstone](limit)
        self._last: dict[tuple[str, str], str] = {}
        """Namespace and name → UID of the last one that left."""

    def put(self, pod: GpuPod, *, gone: bool, final: bool = False) -> None:
        """Remember the last version of a pod that leaves the cache."""
        self._remember(pod.uid, Tombstone(pod.key, pod.node, pod.stopped, gone, final))

    def confirm(self, uid: str) -> None:
        """Remember that a live read found no pod of this UID."""
        self._remember(uid, replace(self._tombstones.get(uid) or Tombstone(), gone=True))

    def mention(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Remember a pod of which nothing but the name was ever heard; `gone`: and that it is gone."""
        tombstone = self._tombstones.get(metadata.uid) or Tombstone((metadata.namespace, metadata.name))
        self._remember(metadata.uid, replace(tombstone, gone=tombstone.gone or gone))

    def find(self, uid: str) -> Tombstone | None:
        """Return what is known of a pod that left."""
        return self._tombstones.get(uid)

    def knows(self, key: tuple[str, str]) -> bool:
        """Whether a pod of that namespace and name has left."""
        return key in self._last

    def has_stopped(self, key: tuple[str, str], node: str) -> bool:
        """Whether the last pod of that namespace and name that left had stopped, on that node."""
        last = self._tombstones.get(self._last.get(key, ""))
        return last is not None and last.stopped and last.node == node

    def _remember(self, uid: str, tombstone: Tombstone) -> None:
        forgotten = self._tombstones.put(uid, tombstone)
        self._last[tombstone.key] = uid
        if forgotten is None:
            return
        oldest, old = forgotten
        if self._last.get(old.key) == oldest:
            del self._last[old.key]
