"""Whole ResourceClaims and ResourceSlices, as the watches of the core show them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from extender.cluster.objects.devices import ResourceClaim, ResourceSlice
from extender.cluster.objects.kinds import ObjectMeta, Pod
from extender.cluster.objects.versions import Listing, is_same_version
from extender.features.dra.inventory import NodeInventory, read_inventory
from extender.features.dra.requests import names_any

Change = Callable[[ResourceClaim | None, ResourceClaim | None], None]


class ClaimCache:
    """All claims, each in the newest version that the watch has shown.

    Args:
        changed: Is called with a claim before and after each change.
        reserved: DeviceClasses whose claims kube-scheduler gives the same devices.

    """

    def __init__(self, changed: Change, reserved: Collection[str] = ()) -> None:
        self._changed = changed
        self._reserved = frozenset(reserved)
        self._claims: dict[str, ResourceClaim] = {}
        """By UID."""
        self._uids: dict[tuple[str, str], str] = {}
        self._of_pods: dict[tuple[str, str], dict[str, None]] = {}
        """Namespace and UID of a pod → UIDs of the claims that are for it, in the order in which they were heard of."""
        self._of_pools: dict[str, set[str]] = {}
        """Pool → UIDs of the claims that hold devices of it."""
        self._others_waiting: dict[str, int] = {}
        """UIDs of the claims of reserved classes without an allocation, numbered in the order in which they were heard of."""
        self.others_heard = 0
        """How many such claims have been heard of."""

    def replacing(self, objects: Sequence[ResourceClaim], listing: Listing) -> Iterator[None]:
        """Take these, and those that could not be read, for all claims that exist, one after the other."""
        uids = {metadata.uid for metadata in (*(item.metadata for item in objects), *listing.unread)}
        for uid in [uid for uid in self._claims if uid not in uids]:
            self._put(uid, None)
            yield
        for item in objects:
            self.changed(item)
            yield

    def changed(self, item: ResourceClaim) -> None:
        """Take this for the newest version of a claim; a list shows most of them as they are known."""
        known = self._claims.get(item.metadata.uid)
        if known is None or not is_same_version(item.metadata, known.metadata):
            self._put(item.metadata.uid, item)

    def deleted(self, item: ResourceClaim) -> None:
        """Take this for the last version of a claim that is gone."""
        self._put(item.metadata.uid, None)

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Take note of a version that cannot be read: what was known stays, unless it is the claim's last."""
        if gone:
            self._put(metadata.uid, None)

    def of_pod_uid(self, namespace: str, pod: str) -> list[ResourceClaim]:
        """Return the claims that are for a pod, by its UID; claims of other namespaces may say so of any pod."""
        return [self._claims[uid] for uid in self._of_pods.get((namespace, pod), ())]

    def get(self, uid: str) -> ResourceClaim | None:
        """Return a claim by its UID."""
        return self._claims.get(uid)

    def of_pod(self, pod: Pod) -> list[ResourceClaim] | None:
        """Return all claims of a pod in its order; `None` while some do not exist."""
        claims = [self.find(pod.metadata.namespace, name) for name in names_of_claims(pod)]
        present = [claim for claim in claims if claim is not None]
        return present if len(present) == len(claims) else None

    def find(self, namespace: str, name: str) -> ResourceClaim | None:
        """Return a claim by its name."""
        return self._claims.get(self._uids.get((namespace, name), ""))

    def holding(self, pools: Iterable[str]) -> list[ResourceClaim]:
        """Return the claims that hold devices of these pools."""
        uids = {uid for pool in pools for uid in self._of_pools.get(pool, ())}
        return [self._claims[uid] for uid in sorted(uids)]

    def others_wait_since(self, others_heard: int) -> bool:
        """Whether kube-scheduler may still allocate one of the first so many claims of reserved classes."""
        return next(iter(self._others_waiting.values()), others_heard) < others_heard

    def _put(self, uid: str, after: ResourceClaim | None) -> None:
        if after is None or after.status.allocation or not names_any(after, self._reserved):
            self._others_waiting.pop(uid, None)
        elif uid not in self._others_waiting:
            self._others_waiting[uid] = self.others_heard
            self.others_heard += 1
        before = self._claims.pop(uid, None)
        name = (before.metadata.namespace, before.metadata.name) if before else None
        if name and self._uids.get(name) == uid:  # it may be another claim's by now
            del self._uids[name]
        if after is not None:
            self._claims[uid] = after
            self._uids[after.metadata.namespace, after.metadata.name] = uid
        for pod in {*_pod(before), *_pod(after)}:
            claims = self._of_pods.setdefault(pod, {})
            if pod not in _pod(after):
                claims.pop(uid, None)
            else:
                claims.setdefault(uid)
            if not claims:
                del self._of_pods[pod]
        for pool in _pools(before):
            self._of_pools[pool].discard(uid)
            if not self._of_pools[pool]:
                del self._of_pools[pool]
        for pool in _pools(after):
            self._of_pools.setdefault(pool, set()).add(uid)
        self._changed(before, after)


class SliceCache:
    """All slices of NVIDIA's driver, by the node that publishes them."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._of_nodes: dict[str, set[str]] = {}
        self._inventories: dict[str, NodeInventory] = {}
        """By node, of what has been asked for since its slices have changed."""

    def replacing(self, objects: Sequence[ResourceSlice], listing: Listing) -> Iterator[None]:
        """Take these, and those that could not be read, for all slices that exist, one after the other."""
        names = {metadata.name for metadata in (*(item.metadata for item in objects), *listing.unread)}
        for name in [name for name in self._slices if name not in names]:
            self._put(name, None)
            yield
        for item in objects:
            self.changed(item)
            yield

    def changed(self, item: ResourceSlice) -> None:
        """Take this for the newest version of a slice."""
        self._put(item.metadata.name, item)

    def deleted(self, item: ResourceSlice) -> None:
        """Take this for the last version of a slice that is gone."""
        self._put(item.metadata.name, None)

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Take note of a version that cannot be read: the pool is incomplete then, and not allocated from."""
        self._put(metadata.name, None)

    def on(self, node: str) -> list[ResourceSlice]:
        """Return the slices of a node."""
        return [self._slices[name] for name in sorted(self._of_nodes.get(node, ()))]

    def inventory(self, node: str) -> NodeInventory:
        """Return what a node's driver publishes, whoever holds it."""
        if node not in self._inventories:
            self._inventories[node] = read_inventory(node, self.on(node))
        return self._inventories[node]

    def _put(self, name: str, after: ResourceSlice | None) -> None:
        before = self._slices.pop(name, None)
        if after is not None:
            self._slices[name] = after
        if before is not None and before.spec.node_name:
            self._of_nodes[before.spec.node_name].discard(name)
        if after is not None and after.spec.node_name:
            self._of_nodes.setdefault(after.spec.node_name, set()).add(name)
        for node in {item.spec.node_name for item in (before, after) if item and item.spec.node_name}:
            self._inventories.pop(node, None)


def names_of_claims(pod: Pod) -> list[str]:
    """Return the names of a pod's claims in its order; one that has not been made from its template yet has an empty name."""
    made = {status.name: status.resource_claim_name or "" for status in pod.status.resource_claim_statuses or ()}
    return [named.resource_claim_name or made.get(named.name, "") for named in pod.spec.resource_claims or ()]


def _pod(claim: ResourceClaim | None) -> tuple[tuple[str, str], ...]:
    return ((claim.metadata.namespace, claim.pod),) if claim and claim.pod else ()


def _pools(claim: ResourceClaim | None) -> set[str]:
    return {result.pool for result in claim.held} if claim else set()
