"""Who hears what of the cluster's pods: agents', those that ask for GPUs, and of all others what they take of a node's CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extender.cluster.caches.cpu import cpu_only
from extender.cluster.objects.kept_pods import lean, lean_with_claims
from extender.cluster.objects.kinds import ObjectMeta, Pod
from extender.cluster.objects.pod_demand import asked_by
from extender.cluster.objects.versions import NOTHING_MORE, Listing, is_same_version
from extender.cluster.state import ClusterState


class PodFeed:
    """One way in for a list and its events; everybody passes over what is not for them."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._hearers = (state.cpu, state.agents, state.pods)

    def keep(self, pod: Pod) -> Pod | None:
        """Return what has to be kept of a pod until it is told; of most of a cluster's pods that is next to nothing."""
        if self._state.agents.is_one(pod):
            return pod
        demand = asked_by(pod, self._state.resource)
        if self._state.claimed.has(pod):
            return lean_with_claims(pod, demand, self._state.movable)
        return lean(pod, demand, self._state.movable) if demand.names_gpus else cpu_only(pod, demand)

    def knows(self, metadata: ObjectMeta) -> bool:
        """Whether everybody has this version of a pod already: live replies tell nobody what it takes of its node's CPU."""
        cached = self._state.pods.get(metadata.uid)
        return cached is not None and cached.node is None and is_same_version(metadata, cached.pod.metadata)

    def replaced(self, objects: Sequence[Pod], listing: Listing = NOTHING_MORE) -> None:
        """Take these, and those that could not be read, for all pods that exist."""
        for _ in self.replacing(objects, listing):
            pass

    def replacing(self, objects: Sequence[Pod], listing: Listing) -> Iterator[None]:
        """Do so in steps; of a large cluster there are many. CPU is only a figure, and may change in between."""
        yield from self._state.cpu.replacing(objects, listing)
        agents, with_gpus = list[Pod](), list[Pod]()
        for pod in objects:
            if self._state.agents.is_one(pod):
                agents.append(pod)
            if asked_by(pod, self._state.resource).names_gpus or self._state.claimed.has(pod):
                with_gpus.append(pod)
            yield
        self._state.agents.replaced(agents, listing)
        yield from self._state.pods.replacing(with_gpus, listing)

    def changed(self, item: Pod) -> None:
        """Take this for the newest version of a pod."""
        for hearer in self._hearers:
            hearer.changed(item)

    def deleted(self, item: Pod) -> None:
        """Take this for the last version of a pod that is gone."""
        for hearer in self._hearers:
            hearer.deleted(item)

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Take note of a version that cannot be read; `gone`: it is the pod's last."""
        self._state.pods.unread(metadata, gone=gone)
        if gone:
            self._state.cpu.deleted(Pod(metadata))
            self._state.agents.deleted(Pod(metadata))
