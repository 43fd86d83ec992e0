"""How much of each node's CPU is asked for, by all pods: a node that runs out of it leaves its GPUs idle.

Quality only: no safety rests on it, so the newest event is taken for the newest version.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from extender.cluster.objects.gpu_pods import has_ended
from extender.cluster.objects.kinds import Container, Node, ObjectMeta, Pod, PodSpec, PodStatus, ResourceRequirements
from extender.cluster.objects.pod_demand import PodDemand, asked_by
from extender.cluster.objects.quantities import quantity
from extender.cluster.objects.versions import NOTHING_MORE, Listing


class CpuInUse:
    """Adds up the requests of the pods that are bound to a node and have not ended, as kube-scheduler does.

    Args:
        touched: Is called with a node's name when the sum may have changed.

    """

    def __init__(self, touched: Callable[[str], None]) -> None:
        self._touched = touched
        self._of: dict[str, tuple[str, int]] = {}
        """UID → node and request."""
        self._on: Counter[str] = Counter()

    def replaced(self, objects: Sequence[Pod], listing: Listing = NOTHING_MORE) -> None:
        """Take these, and those that could not be read, for all pods that exist."""
        for _ in self.replacing(objects, listing):
            pass

    def replacing(self, objects: Sequence[Pod], listing: Listing) -> Iterator[None]:
        """Do so one after the other; the sums are right at the end."""
        uids = {metadata.uid for metadata in listing.unread}
        for pod in objects:
            uids.add(pod.metadata.uid)
            self.changed(pod)
            yield
        for uid in [uid for uid in self._of if uid not in uids]:
            self._take(uid, None)

    def changed(self, item: Pod) -> None:
        """Take this for the newest version of a pod."""
        node, milli = item.spec.node_name, asked_by(item).cpu_milli
        self._take(item.metadata.uid, (node, milli) if node and milli and not has_ended(item) else None)

    def deleted(self, item: Pod) -> None:
        """Take this for the last version of a pod that is gone."""
        self._take(item.metadata.uid, None)

    def free_milli(self, node: Node) -> int | None:
        """Return what nobody has asked for of the node's CPU; `None` where the node does not say how much it has."""
        try:
            allocatable = quantity((node.status.allocatable or {})["cpu"])
        except (KeyError, ValueError):
            return None
        return max(0, int(1000 * allocatable) - self._on[node.metadata.name])

    def _take(self, uid: str, now: tuple[str, int] | None) -> None:
        before = self._of.pop(uid, None)
        if now:
            self._of[uid] = now
        if before == now:
            return
        for taken, sign in ((before, -1), (now, 1)):
            if taken:
                node, milli = taken
                self._on[node] += sign * milli
                if not self._on[node]:
                    del self._on[node]
                self._touched(node)


def cpu_only(pod: Pod, demand: PodDemand) -> Pod | None:
    """Return the pod without anything that `CpuInUse` does not read; `None` of one that no node has."""
    if not pod.spec.node_name:
        return None
    return Pod(
        ObjectMeta(uid=pod.metadata.uid, resource_version=pod.metadata.resource_version),
        PodSpec(node_name=sys.intern(pod.spec.node_name), containers=_asking(demand.cpu_milli)),
        PodStatus(phase=pod.status.phase and sys.intern(pod.status.phase)),
    )


@lru_cache(1024)
def _asking(cpu_milli: int) -> list[Container]:
    return [Container(resources=ResourceRequirements(requests={"cpu": f"{cpu_milli}m"}))]
