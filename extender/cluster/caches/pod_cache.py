"""All pods that ask for GPUs, each in the newest version that was heard of, and what is remembered of those that left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from extender.cluster.caches.claimed_requests import ClaimedRequests
from extender.cluster.caches.tombstones import Tombstone, Tombstones
from extender.cluster.objects.gpu_pods import GpuPod, has_stopped, read_gpu_pod
from extender.cluster.objects.kinds import ObjectMeta, Pod
from extender.cluster.objects.versions import NOTHING_MORE, Listing, is_older
from topology.annotations.records import Holder


class PodCache:
    """Takes lists, events and live replies in any order.

    Args:
        resource: The name of the GPU resource; pods that do not ask for it are passed over.
        touched: Is called with a UID, and the nodes that the pod was and is bound to, whenever something changed.
        claimed: What pods request by ResourceClaims.

    """

    def __init__(
        self,
        resource: str,
        touched: Callable[[str, set[str]], None],
        claimed: ClaimedRequests | None = None,
    ) -> None:
        self.synced = False
        self._resource = resource
        self._touched = touched
        self._claimed = claimed or ClaimedRequests()
        self._pods: dict[str, GpuPod] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._bound: dict[str, set[str]] = {}
        self._followed: set[str] = set()
        """UIDs of pods that we have known since before they were bound."""
        self._tombstones = Tombstones()

    def replaced(self, objects: Sequence[Pod], listing: Listing = NOTHING_MORE) -> None:
        """Take these, and those that could not be read, for all pods that exist.

        One that is missing is gone from the cache; that it is dead is not said.
        """
        for _ in self.replacing(objects, listing):
            pass

    def replacing(self, objects: Sequence[Pod], listing: Listing) -> Iterator[None]:
        """Do so in steps: all that costs time is done before anything changes. The first list fills the cache as it goes."""
        read, uids = list[tuple[Pod, GpuPod | None, GpuPod]](), {metadata.uid for metadata in listing.unread}
        for item in objects:
            uids.add(item.metadata.uid)
            cached = self._pods.get(item.metadata.uid)
            if cached is None or not listing.precedes(cached.pod.metadata):
                newer = self._news(item, cached)
                if newer and self.synced:
                    read.append((item, cached, newer))
                elif newer:
                    self._put(newer, cached)
            yield
        for item, cached, newer in read:
            now = self._pods.get(newer.uid)
            if now is cached:
                self._put(newer, cached)
            elif now is None or not listing.precedes(now.pod.metadata):  # a live reply came in between
                self._take(item, now)
        for metadata in listing.unread:
            self.unread(metadata, gone=False)
        self._claimed.keep_only(uids)
        for missing in [pod for uid, pod in self._pods.items() if uid not in uids]:
            self._remove(missing.uid)
            self._tombstones.put(missing, gone=False)
            self._touch(missing)
        self.synced = True

    def changed(self, item: Pod) -> None:
        """Take this for the newest version of a pod, unless a newer one is known."""
        before = self._pods.get(item.metadata.uid)
        if before is None or not is_older(item.metadata, before.pod.metadata):
            self._take(item, before)

    def _take(self, item: Pod, before: GpuPod | None) -> None:
        if pod := self._news(item, before):
            self._put(pod, before)

    def _news(self, item: Pod, before: GpuPod | None) -> GpuPod | None:
        """Return the facts of a version; `None` where it is as it is known, or of no concern here."""
        if before is not None and _is_same(item, before.pod):
            return None  # a list shows all pods anew, of which hardly any has changed
        return self._read(item, before)

    def _put(self, pod: GpuPod, before: GpuPod | None) -> None:
        namesake = self.find(*pod.key)
        if namesake and namesake.uid != pod.uid:
            self._remove(namesake.uid)
            self._tombstones.put(namesake, gone=True)
            self._touch(namesake)
        is_followed = pod.uid in self._followed or (before is None and self.synced and pod.node is None)
        self._remove(pod.uid)
        self._pods[pod.uid] = pod
        self._uids[pod.key] = pod.uid
        if is_followed:
            self._followed.add(pod.uid)
        if pod.node:
            self._bound.setdefault(pod.node, set()).add(pod.uid)
        self._touch(pod, before)

    def deleted(self, item: Pod) -> None:
        """Take this for the last version of a pod that is gone."""
        before = self._pods.get(item.metadata.uid)
        last = self._read(item, before)
        self._claimed.forget(item.metadata.uid)
        if last is None:
            return
        self._remove(last.uid)
        self._tombstones.put(last, gone=True, final=True)
        self._touch(last, before)

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Take note of a version that cannot be read: what was known stays, unless it is the pod's last (`gone`)."""
        cached = self._pods.get(metadata.uid)
        if gone:
            self._claimed.forget(metadata.uid)
        if cached is None:
            self._tombstones.mention(metadata, gone=gone)
            self._touched(metadata.uid, set())
        elif gone:
            self._remove(cached.uid)
            self._tombstones.put(cached, gone=True)
            self._touch(cached)

    def learn(self, item: Pod) -> None:
        """Take in what a live reply shows; a pod that is not known is the watch's to tell."""
        if item.metadata.uid in self._pods:
            self.changed(item)

    def read_again(self, uid: str) -> None:
        """Read a pod with ResourceClaims again, of which these have changed."""
        item, before = self._claimed.get(uid), self._pods.get(uid)
        if item is not None and (pod := self._read(item, before)) and pod != before:
            self._put(pod, before)

    def learn_gone(self, uid: str) -> None:
        """Take in that a live read found no pod of this UID; one that is still in the cache is the watch's to tell."""
        if uid not in self._pods:
            self._tombstones.confirm(uid)
            self._touched(uid, set())

    def get(self, uid: str) -> GpuPod | None:
        """Return a pod by UID."""
        return self._pods.get(uid)

    def find(self, namespace: str, name: str) -> GpuPod | None:
        """Return a pod by namespace and name."""
        return self._pods.get(self._uids.get((namespace, name), ""))

    def tombstone(self, uid: str) -> Tombstone | None:
        """Return what is remembered of a pod that left."""
        return self._tombstones.find(uid)

    def bound_to(self, node: str) -> list[GpuPod]:
        """Return the pods that are bound to a node, stopped ones too."""
        return [self._pods[uid] for uid in sorted(self._bound.get(node, ()))]

    def is_stale(self, holder: Holder, node: str) -> bool:
        """Whether an observed holder is known to have stopped on `node`; one that nobody knows may well be running."""
        key = holder.namespace, holder.name
        pod = self.find(*key)
        return pod.stopped if pod and pod.node == node else self._tombstones.has_stopped(key, node)

    def runs_as(self, key: tuple[str, str], node: str) -> str | None:
        """Return the UID of the pod with that namespace and name whose containers have started on `node`, if they have."""
        pod = self.find(*key)
        return pod.uid if pod and pod.node == node and pod.pod.status.phase == "Running" else None

    def is_alone(self, pod: GpuPod) -> bool:
        """Whether no report can mean another pod of that name: none has left, and this one was heard of before it was bound."""
        return pod.uid in self._followed and not self._tombstones.knows(pod.key)

    @property
    def waiting(self) -> int:
        """How many pods are bound to no node; linear in nodes."""
        return len(self._pods) - sum(map(len, self._bound.values()))

    def __iter__(self) -> Iterator[GpuPod]:
        return iter(self._pods.values())

    def __len__(self) -> int:
        return len(self._pods)

    def _read(self, item: Pod, before: GpuPod | None) -> GpuPod | None:
        """Return the pod's facts. What once proved that it stopped stays so, and so does what claims that are gone requested."""
        stopped = (before is not None and before.stopped) or has_stopped(item)
        claimed = self._claimed.read(item) or (before.claimed if before else None)
        return read_gpu_pod(item, self._resource, stopped=stopped, claimed=claimed)

    def _remove(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._followed.discard(uid)
        if self._uids.get(pod.key) == uid:
            del self._uids[pod.key]
        if pod.node:
            self._bound[pod.node].discard(uid)
            if not self._bound[pod.node]:
                del self._bound[pod.node]

    def _touch(self, *versions: GpuPod | None) -> None:
        uid = next(pod.uid for pod in versions if pod)
        self._touched(uid, {pod.node for pod in versions if pod and pod.node})


def _is_same(item: Pod, cached: Pod) -> bool:
    """Whether a pod is just as it is known; a list writes it a little shorter than a watch does."""
    return (
        item.json_bytes <= cached.json_bytes
        and item.metadata == cached.metadata
        and item.status == cached.status
        and item.spec == cached.spec
    )
