"""Which GPUs of a node are held by ResourceClaims: the devices of their allocations, matched with what the driver publishes.

Held is held: by a claim that nobody uses yet, by several claims that share one device, and by a share of its capacity. A device
of which nobody tells the GPU may be any of the node's. So it is told, too, and closes that node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from extender.cluster.caches.resource_slices import Hearer, ResourceSlices
from extender.cluster.objects.devices import ClaimMeta, ClaimStatus, ResourceClaim
from extender.cluster.objects.kinds import ObjectMeta
from extender.cluster.objects.node_devices import NOTHING, NodeDevices
from extender.cluster.objects.published_parts import PublishedParts
from extender.cluster.objects.versions import NOTHING_MORE, Listing
from extender.kit.bounded import Bounded
from topology.annotations.records import ClaimUser
from topology.node.silicon import SLICE_PREFIX

Key = TypeVar("Key", bound=Hashable)

MAX_HAD_ADMIN_ACCESS: Final = 10_000
"""Claims that are gone: one for each node, while the monitors of a large cluster are replaced."""
NO_RIGHT: Final = "the account may not list and watch resourceclaims and resourceslices"


@dataclass(frozen=True, slots=True)
class _Holds:
    """What one claim holds."""

    claim: str
    devices: tuple[tuple[str, str, str], ...]
    """Node, pool and name of each device."""
    pod: str = ""
    """UID of the pod that it is for, where we allocate it."""
    user: str = ""
    """Where no feature allocates claims any more: UID of the only pod that the claim is reserved for."""
    by_admin_access: tuple[tuple[str, str, str], ...] = ()
    """Devices that its pods have, and that it does not hold."""

    @property
    def all_devices(self) -> tuple[tuple[str, str, str], ...]:
        """All devices that its pods have."""
        return *self.devices, *self.by_admin_access


class ResourceClaims:
    """All claims that hold devices of NVIDIA's driver.

    Args:
        touched: Is called with the name of each node of which something changed.
        pod_touched: Is called with the UID of a pod for which we allocate a claim, when that has changed.

    """

    def __init__(self, touched: Callable[[str], None], pod_touched: Callable[[str], None] = lambda uid: None) -> None:
        self.slices = ResourceSlices(self._pool_touched)
        """What the driver publishes; lists and events of that go there."""
        self.trouble: str | None = None
        """Why claims are not read, where they should be."""
        self.allocated_here: Callable[[ResourceClaim], bool] | None = None
        """Whether a feature allocates a claim; `None`: there is no such feature, and nodes of DRA are closed."""
        self.allocates_new: bool | None = True
        """Whether that feature allocates new claims, and not only knows old ones; `None`: it may, nobody can say."""
        self.trimmed: Callable[[ResourceClaim], ResourceClaim] = lean_claim
        """Returns what is read of a claim later; of most that is next to nothing."""
        self.parts_of: Callable[[str], PublishedParts | None] = lambda node: None
        """Returns the MIG devices of a node that a feature allocates."""
        self.hearers: list[Hearer[ResourceClaim]] = []
        """Features that keep whole claims; they hear of each change after this cache has."""
        self._touched = touched
        self._pod_touched = pod_touched
        self._is_heard = False
        self._claims: dict[str, _Holds] = {}
        """By UID."""
        self._on: dict[str, set[str]] = {}
        """Node → UIDs of the claims that hold devices there."""
        self._of: dict[str, set[str]] = {}
        """Pool → UIDs of the claims that hold devices of it."""
        self._for: dict[tuple[str, str], set[str]] = {}
        """Namespace and UID of a pod → UIDs of its claims that we allocate, whether they hold anything or not."""
        self._had_admin_access = Bounded[str, frozenset[tuple[str, str, str]]](MAX_HAD_ADMIN_ACCESS)
        """Namespace and name of a claim that is gone → node, pool and name of its devices by admin access."""
        self._settled: set[str] = set()
        """UIDs of claims that we allocate no more."""

    def keep(self, claim: ResourceClaim) -> ResourceClaim:
        """Return what is read of a claim later."""
        return self.trimmed(claim)

    def replaced(self, objects: Sequence[ResourceClaim], listing: Listing = NOTHING_MORE) -> None:
        """Take these, and those that could not be read, for all claims that exist."""
        for _ in self.replacing(objects, listing):
            pass

    def replacing(self, objects: Sequence[ResourceClaim], listing: Listing) -> Iterator[None]:
        """Do so in steps, so that no device seems free meanwhile: first claims hold what they did and what they do now.

        Features hear of one claim after the other after that.
        """
        uids = {metadata.uid for metadata in (*(item.metadata for item in objects), *listing.unread)}
        news = list[tuple[str, _Holds | None]]()
        for item in objects:
            before, after = self._claims.get(item.metadata.uid), self._read(item)
            if before != after:
                self._put(item.metadata.uid, _both(before, after))
                news.append((item.metadata.uid, after))
            yield
        self._settled &= uids
        for uid, after in (*news, *((uid, None) for uid in [*self._claims] if uid not in uids)):
            self._put(uid, after)
            yield
        for hearer in self.hearers:
            yield from hearer.replacing(objects, listing)

    def changed(self, item: ResourceClaim) -> None:
        """Take this for the newest version of a claim; one that was deallocated holds nothing any more."""
        self._put(item.metadata.uid, self._read(item))
        for hearer in self.hearers:
            hearer.changed(item)

    def deleted(self, item: ResourceClaim) -> None:
        """Take this for the last version of a claim that is gone."""
        self._settled.discard(item.metadata.uid)
        self._put(item.metadata.uid, None)
        for hearer in self.hearers:
            hearer.deleted(item)

    def unread(self, metadata: ObjectMeta, *, gone: bool) -> None:
        """Take note of a version that cannot be read: what was known stays, unless it is the claim's last."""
        if gone:
            self._put(metadata.uid, None)
        for hearer in self.hearers:
            hearer.unread(metadata, gone=gone)

    def settle(self, uid: str) -> None:
        """Take note that a claim is allocated no more: without devices it holds nothing, and keeps no GPUs for its pod."""
        self._settled.add(uid)
        if (holds := self._claims.get(uid)) and not holds.devices:
            self._put(uid, None)

    def is_settled(self, uid: str) -> bool:
        """Whether a claim has been settled."""
        return uid in self._settled

    def hear(self, is_heard: bool) -> None:
        """Take note of whether claims and slices are heard of as they change."""
        if is_heard != self._is_heard:
            self._is_heard = is_heard
            self._touch({*self.slices.nodes, *self._on})

    def on(self, node: str, users: Collection[ClaimUser] = (), parts: PublishedParts | None = None) -> NodeDevices:
        """Return what is to be known of a node; linear in its devices, the claims on them, and the users.

        `parts` are the MIG devices that count by themselves; of others the GPU does. `users` are those whom the node's agent saw
        with devices. Where claims and slices are not known, they prove nothing: their claims may have admin access.
        """
        uids, users = self._on.get(node, ()), self._conclusive(node, users)
        if not uids and not users and not self.slices.has(node):
            return NOTHING
        held, unmatched, pods = dict[str, set[str]](), set[tuple[str, str]](), dict[str, str]()
        for holds in (self._claims[uid] for uid in uids):
            for pool, device in ((pool, device) for where, pool, device in holds.devices if where == node):
                if gpu := self._device(node, pool, device, parts):
                    held.setdefault(gpu, set()).add(holds.claim)
                    if pod := holds.pod or holds.user:
                        pods[holds.claim] = pod
                else:
                    unmatched.add((holds.claim, device))
        explained, unexplained = self._by_device(node, users, unmatched, parts)
        return NodeDevices(
            {gpu: tuple(sorted(claims)) for gpu, claims in sorted(held.items())},
            tuple(sorted(unmatched)),
            self.slices.taints(node),
            is_unheard=not self._is_heard,
            pods=pods,
            users=explained,
            unexplained=unexplained,
        )

    def _conclusive(self, node: str, users: Collection[ClaimUser]) -> Collection[ClaimUser]:
        """Return the users of pools that the node's driver publishes, as long as claims are known."""
        return [user for user in users if self.slices.has_pool(node, user.pool)] if self._is_heard else ()

    def _device(self, node: str, pool: str, name: str, parts: PublishedParts | None) -> str | None:
        """Return the UUID of a device that is offered, or that of its GPU; `None` where nobody tells."""
        part = parts.by_device.get((pool, name)) if parts else None
        return part or self.slices.gpu(node, pool, name)

    def _by_device(
        self,
        node: str,
        users: Collection[ClaimUser],
        unmatched: set[tuple[str, str]],
        parts: PublishedParts | None,
    ) -> tuple[dict[str, tuple[ClaimUser, ...]], dict[str, tuple[ClaimUser, ...]]]:
        """Return UUID → its users by claims that hold it, and by others; adds devices that may be any GPU to `unmatched`."""
        holders = [self._claims[uid] for uid in self._on.get(node, ())] if users else ()
        held = {(holds.claim, pool, device) for holds in holders for _, pool, device in holds.devices}
        by_admin_access = {
            (holds.claim, pool, device) for holds in holders for _, pool, device in holds.by_admin_access
        }
        explained, unexplained = dict[str, dict[ClaimUser, None]](), dict[str, dict[ClaimUser, None]]()
        for user, device in [(each, device) for each in users for device in each.devices]:
            claim = f"{user.namespace}/{user.claim}"
            name = claim, user.pool, device
            if name in by_admin_access or (node, user.pool, device) in (self._had_admin_access.get(claim) or ()):
                continue
            if gpu := self._device(node, user.pool, device, parts):
                of = explained if name in held else unexplained
                of.setdefault(gpu, {})[user] = None
            elif name not in held:
                unmatched.add((claim, device))
        return _as_tuples(explained), _as_tuples(unexplained)

    def allocates_on(self, node: str) -> bool:
        """Whether a feature allocates claims for the node's devices."""
        return self.allocated_here is not None and self.allocates_new is not False and self.slices.has(node)

    def may_hold(self, namespace: str, pod: str, gpu: str) -> bool:
        """Whether a claim that we allocate for a pod holds the device, or nothing as far as is known: it may be under way.

        A claim may hold any MIG device that is not published now.
        """
        held = [*self._devices_for(namespace, pod)]
        is_unknown = gpu.startswith(SLICE_PREFIX) and not any(self._is_published(devices, gpu) for devices in held)
        return any(not devices or is_unknown or gpu in self._uuids(devices) for devices in held)

    def holds(self, namespace: str, pod: str, gpu: str) -> bool:
        """Whether a claim that we allocate for a pod holds the device."""
        return any(gpu in self._uuids(devices) for devices in self._devices_for(namespace, pod))

    def _devices_for(self, namespace: str, pod: str) -> Iterator[tuple[tuple[str, str, str], ...]]:
        """Yield what each claim for a pod holds."""
        return (self._claims[uid].devices for uid in self._for.get((namespace, pod), ()))

    def _uuids(self, devices: Sequence[tuple[str, str, str]]) -> set[str | None]:
        return {self._device(*device, self.parts_of(device[0])) for device in devices}

    def _is_published(self, devices: Sequence[tuple[str, str, str]], part: str) -> bool:
        """Whether one of the nodes of these devices publishes a MIG device."""
        published = (self.parts_of(node) for node in {node for node, _, _ in devices})
        return any(parts is not None and part in parts.uuids for parts in published)

    def _read(self, item: ResourceClaim) -> _Holds | None:
        """Return what a claim holds; `None` where it is of no concern here.

        One that is being deleted is not allocated any more: a request that is under way has an earlier version.
        """
        node, held = item.node, item.held
        is_over = not held and (item.metadata.deletion_timestamp is not None or item.metadata.uid in self._settled)
        pod = item.pod if self.allocated_here and self.allocated_here(item) and not is_over else ""
        # NVIDIA names pools after nodes.
        devices = tuple((node or result.pool, result.pool, result.device) for result in held)
        by_admin_access = tuple((node or result.pool, result.pool, result.device) for result in item.by_admin_access)
        user = _only_user(item) if devices and self.allocated_here is None else ""
        is_of_concern = devices or pod or by_admin_access
        return _Holds(item.name, devices, pod, user, by_admin_access) if is_of_concern else None

    def _pool_touched(self, pool: str, nodes: set[str]) -> None:
        holders = (self._claims[uid] for uid in self._of.get(pool, ()))
        self._touch(nodes | {node for holds in holders for node, _, _ in holds.all_devices})

    def _put(self, uid: str, after: _Holds | None) -> None:
        before = self._claims.pop(uid, None)
        if after is not None:
            self._claims[uid] = after
        if before == after:
            return
        self._keep_admin_access(before, after)
        old, new = before.all_devices if before else (), after.all_devices if after else ()
        for index, position in ((self._on, 0), (self._of, 1)):
            _move(index, uid, {device[position] for device in old}, {device[position] for device in new})
        self._touch({node for node, _, _ in (*old, *new)})
        pods = _pods_of(before), _pods_of(after)
        _move(self._for, uid, *pods)
        for _, pod in sorted(pods[0] | pods[1]):
            self._pod_touched(pod)

    def _keep_admin_access(self, before: _Holds | None, after: _Holds | None) -> None:
        """Keep that a claim had admin access: agents see its containers for a while after it is gone."""
        if after is not None:
            self._had_admin_access.pop(after.claim)
        elif before is not None and before.by_admin_access:
            self._had_admin_access.put(before.claim, frozenset(before.by_admin_access))

    def _touch(self, nodes: set[str]) -> None:
        for node in sorted(nodes):
            self._touched(node)


def _only_user(item: ResourceClaim) -> str:
    consumers = item.status.reserved_for or ()
    return consumers[0].uid if len(consumers) == 1 else ""


def _both(before: _Holds | None, after: _Holds | None) -> _Holds | None:
    """Return what a claim holds by either of two versions."""
    if before is None or after is None:
        return before or after
    by_admin_access = (*before.by_admin_access, *after.by_admin_access)
    return replace(after, devices=(*before.devices, *after.devices), by_admin_access=by_admin_access)


def lean_claim(claim: ResourceClaim, *, with_owners: bool = False) -> ResourceClaim:
    """Return a claim with nothing but its name and the GPUs that it holds, or has by admin access."""
    metadata = claim.metadata
    name = ClaimMeta(
        metadata.name,
        metadata.namespace,
        metadata.uid,
        metadata.resource_version,
        owner_references=metadata.owner_references if with_owners else None,
    )
    return ResourceClaim(name, status=claim.status if claim.held or claim.by_admin_access else ClaimStatus())


def _as_tuples(users: Mapping[str, Iterable[ClaimUser]]) -> dict[str, tuple[ClaimUser, ...]]:
    return {gpu: tuple(of) for gpu, of in sorted(users.items())}


def _pods_of(holds: _Holds | None) -> set[tuple[str, str]]:
    """Return namespace and UID of the pod that a claim is for; users may write down one that is in another namespace."""
    return {(holds.claim.partition("/")[0], holds.pod)} if holds and holds.pod else set()


def _move(index: dict[Key, set[str]], uid: str, old: set[Key], new: set[Key]) -> None:
    for key in old - new:
        index[key].discard(uid)
        if not index[key]:
            del index[key]
    for key in new - old:
        index.setdefault(key, set()).add(uid)
