"""Count the pods of each group and how far it has come, from the pods and claims in the cluster.

So every replica sees the same.

Pods on the way count where they will probably be. A claim says where, or a soft hold, which is no more than a good guess.
Pods behind a scheduling gate, or on their way out, are nowhere and wait for no room.

A group is identified by its namespace, its name, the source of that name, and the object that was started. Two runs of
one template are two groups. Its size is believed for itself. Towards other groups it counts for a short time. Groups of
its own namespace believe it as well. Those of other namespaces believe as many pods that do not exist yet as are bound.
A tenant can write any number, and a false one harms that tenant alone. A Job, a JobSet or a PodGroup may state more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from extender.cluster.caches.group_sizes import GroupSizes
from extender.cluster.objects.gpu_pods import GpuPod, read_group
from extender.cluster.objects.group_words import ALL_WORDS, GroupKey, GroupWords
from extender.cluster.objects.kinds import Pod
from topology.placement.group import Progress
from topology.request.domains import Domain, GroupRequest, Level, Location
from topology.request.gpu_request import GpuRequest

GRACE_SECONDS = 60.0
"""How long after its newest bound pod a group keeps room for pods that do not exist yet; controllers make them in batches."""
RENEWED_SECONDS = 600.0
"""How long after its oldest pod newer ones may renew that time: replacing one pod again and again keeps no room."""

PlaceOf = Callable[[str], str | None]
"""UID of a pod that is not bound → the node that it is on its way to."""


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of a group."""

    pod: GpuPod
    request: GroupRequest


@dataclass(frozen=True, slots=True)
class _Tally:
    """What all pods of a group come to, as of one version of each."""

    live: tuple[tuple[str, str | None], ...]
    """UID and node of each pod that is anywhere; without a node it waits for nothing but a place."""
    bound: int
    """How many of these have one."""
    gated: int
    done: int
    stated_size: int
    """The greatest that a pod states; 0: none does."""
    gpus: int
    """The most that one of its pods takes of GPUs, or of shares of them."""
    oldest: str
    newest: str
    """When its oldest pod was created, and its newest bound one or, where none is bound, the oldest again."""

    @classmethod
    def of(cls, members: Mapping[str, Member]) -> Self:
        """Add up the members of a group."""
        pods = {uid: member.pod for uid, member in members.items()}
        live = {uid: pod for uid, pod in pods.items() if pod.is_alive and not pod.is_gated}
        created = [(pod.node is not None, pod.pod.metadata.creation_timestamp or "") for pod in pods.values()]
        oldest = min((when for _, when in created), default="")
        return cls(
            tuple((uid, pod.node) for uid, pod in live.items()),
            sum(pod.node is not None for pod in live.values()),
            sum(pod.is_gated for pod in pods.values()),
            sum(pod.pod.status.phase == "Succeeded" for pod in pods.values()),
            max((member.request.size or 0 for member in members.values()), default=0),
            max((pod.gpus or len(pod.shares) for pod in live.values()), default=0),
            oldest,
            max((when for is_bound, when in created if is_bound), default=oldest),
        )

    def placed(self, place_of: PlaceOf) -> list[str]:
        """Return where its pods are, or are on their way to; a node once for each."""
        return [place for uid, node in self.live if (place := node or place_of(uid))]

    def rest(self, size: int | None, placed: int) -> int:
        """Return how many are still to be placed."""
        return max(len(self.live) - placed, (size or 0) - placed - self.done)

    def is_young(self, age_of: Callable[[str | None], float]) -> bool:
        """Whether the group may still wait for pods that do not exist yet.

        A pod that is not bound renews nothing, because it costs nothing to create one. Where none is bound yet the oldest counts.
        """
        return age_of(self.newest) < GRACE_SECONDS and age_of(self.oldest) < RENEWED_SECONDS


class Groups:
    """All groups; a pod whose annotations cannot be read belongs to none."""

    def __init__(self, locations: Mapping[str, Location], words: GroupWords = ALL_WORDS) -> None:
        """Read where nodes stand, by name, off `locations`, and which group a pod is in by `words`."""
        self.words = words
        self.sizes = GroupSizes(self._resized)
        """Of groups whose pods say none; where nobody reads them there are none."""
        self._locations = locations
        self._members: dict[GroupKey, dict[str, Member]] = {}
        self._tallies: dict[GroupKey, _Tally] = {}
        """Of groups of which somebody asked since their pods changed last."""
        self._key_of: dict[str, GroupKey] = {}
        self._touched: set[GroupKey] = set()
        self._begun: set[GroupKey] = set()

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take note of the newest version of a pod; `None`: it is gone."""
        before = self._key_of.pop(uid, None)
        if before is not None:
            self._leave(before, uid)
        request = read_group(pod.pod, self.words) if pod else None
        if pod is None or request is None:
            return
        key = self._key_of[uid] = key_of(pod.pod, request)
        self._members.setdefault(key, {})[uid] = Member(pod, request)
        self._touch(key)

    def request_of(self, uid: str) -> GroupRequest | None:
        """Return what a pod says of its group, `None` where it has none."""
        return self._members[self._key_of[uid]][uid].request if uid in self._key_of else None

    def _leave(self, key: GroupKey, uid: str) -> None:
        """Take a pod out; of a group without any nothing is left, for nobody may ever ask about it."""
        del self._members[key][uid]
        self._touch(key)
        if not self._members[key]:
            del self._members[key]
            self._touched.remove(key)
            self._begun.discard(key)

    def _touch(self, key: GroupKey) -> None:
        self._touched.add(key)
        self._tallies.pop(key, None)

    def _tally(self, key: GroupKey) -> _Tally:
        if key not in self._tallies:
            self._tallies[key] = _Tally.of(self._members[key])
        return self._tallies[key]

    def _tally_without(self, key: GroupKey, uid: str) -> _Tally:
        members = self._members.get(key, {})
        if members and uid not in members:
            return self._tally(key)
        return _Tally.of({other: member for other, member in members.items() if other != uid})

    def _resized(self, key: GroupKey) -> None:
        if key in self._members:
            self._touched.add(key)

    def with_size(self, key: GroupKey, group: GroupRequest) -> GroupRequest:
        """Return what a pod asks of its group's place, with the size that is known where the pod says none."""
        known = None if group.size else self.sizes.by_group.get(key)
        return replace(group, size=known) if known else group

    def progress(self, key: GroupKey, size: int | None, place_of: PlaceOf, asking: str = "") -> Progress:
        """Return how far a group has come; linear in its pods.

        Args:
            key: The group.
            size: Of how many pods; `None`: of those that there are.
            place_of: Says where pods on the way will be.
            asking: UID of the pod to be placed now, which counts as to be placed whatever else is known of it.

        """
        tally = self._tally_without(key, asking)
        nodes = tally.placed(place_of)
        unplaced = len(tally.live) - len(nodes) + bool(asking)
        return Progress(max(unplaced, tally.rest(size, len(nodes))), tuple(self._places(nodes)))

    def nodes(self, key: GroupKey, place_of: PlaceOf, asking: str = "") -> list[str]:
        """Return where the other pods of a group are, or are on their way to; a node once for each."""
        return self._tally_without(key, asking).placed(place_of)

    def beside(self, uid: str) -> list[GpuPod]:
        """Return the other pods of a pod's group; none of a pod that has no group."""
        members = self._members.get(self._key_of[uid], {}) if uid in self._key_of else {}
        return [member.pod for other, member in members.items() if other != uid]

    def peers(self, uid: str) -> list[GpuPod] | None:
        """Return those of them that are anywhere, or will be; `None`: the pod has no group."""
        if uid not in self._key_of:
            return None
        members = self._members[self._key_of[uid]].items()
        return [member.pod for other, member in members if other != uid and member.pod.is_alive]

    def has_peers(self, uid: str) -> bool:
        """Whether there are any of them; linear in the group only once after each change of it."""
        return self.count_peers(uid) > 0

    def count_peers(self, uid: str) -> int:
        """Return how many of them there are, at the same cost."""
        if uid not in self._key_of:
            return 0
        key = self._key_of[uid]
        tally, itself = self._tally(key), self._members[key][uid].pod.is_alive
        return len(tally.live) + tally.gated - itself

    def is_spread(self, uid: str) -> bool:
        """Whether a pod's group is at work on several nodes; mostly its first two pods tell."""
        nodes = set[str]()
        for member in self._members[self._key_of[uid]].values() if uid in self._key_of else ():
            if member.pod.is_alive and member.pod.node:
                nodes.add(member.pod.node)
            if len(nodes) > 1:
                return True
        return False

    def reserved(
        self,
        key: GroupKey,
        gpus: int,
        place_of: PlaceOf,
        on_the_way: Iterable[str],
        age_of: Callable[[str | None], float],
    ) -> Counter[Domain]:
        """Return for how many pods of so many GPUs the other groups still need room in the domains where they have begun.

        Linear in the groups that have begun and are not whole, and in their nodes. The GPUs of all of them are added up before
        they are counted in pods. So many small groups keep no more room than one that is as large as all of them.

        Args:
            key: The group that asks.
            gpus: What each of its pods takes.
            place_of: Says where pods on the way will be.
            on_the_way: UIDs of such pods.
            age_of: Creation timestamp → seconds.

        """
        reserved_gpus: Counter[Domain] = Counter()
        begun = self._unfinished().union(self._key_of[uid] for uid in on_the_way if uid in self._key_of)
        for other in begun - {key}:
            tally = self._tally(other)
            size = self._size_for(key[0], other, tally) if tally.is_young(age_of) else None
            nodes = tally.placed(place_of)
            rest_gpus = tally.rest(size, len(nodes)) * tally.gpus
            for domain in (
                {place.domain(level) for place in self._places(nodes) for level in Level} if rest_gpus else ()
            ):
                reserved_gpus[domain] += rest_gpus
        return Counter({domain: -(-theirs // gpus) for domain, theirs in reserved_gpus.items() if theirs})

    def _unfinished(self) -> set[GroupKey]:
        """Return the groups that have a bound pod, and others to be placed."""
        for key in self._touched:
            tally = self._tally(key)
            is_begun = tally.bound and tally.rest(self._size(key), tally.bound)
            (self._begun.add if is_begun else self._begun.discard)(key)
        self._touched.clear()
        return self._begun

    def _size(self, key: GroupKey) -> int:
        return self._tally(key).stated_size or self.sizes.by_group.get(key, 0)

    def _size_for(self, namespace: str, key: GroupKey, tally: _Tally) -> int:
        """Return the size of a group that groups of a namespace have to respect, without the pods behind gates."""
        size = self._size(key) - tally.gated
        if namespace == key[0]:
            return size
        bound_or_due = len(tally.live) + tally.bound + tally.done
        return min(size, max(bound_or_due, self.sizes.by_group.get(key, 0) - tally.gated))

    def _places(self, nodes: Iterable[str]) -> set[Location]:
        return {self._locations.get(node, Location()) for node in nodes}


def key_of(pod: Pod, group: GroupRequest) -> GroupKey:
    """Return by what a pod's group is known."""
    return pod.metadata.namespace, group.source, group.name, group.run


def fitting_for(
    request: GpuRequest, rest: int, fitting: Callable[[GpuRequest], Mapping[Location, int]]
) -> Mapping[Location, int]:
    """Return what there is for the pods of a group: sets of the preferred affinity alone, as long as they are enough.

    A near domain does not make up for GPUs that are joined badly; where no domain is known, nothing is left out. `fitting` says
    of a request how many such pods the nodes of each location could take.
    """
    every = fitting(request)
    if request.required or not request.preferred or not any(map(any, every)):
        return every
    joined = fitting(replace(request, required=request.preferred))
    return joined if sum(joined.values()) >= rest else every
