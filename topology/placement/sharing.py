"""What a placement leaves of a node beside its links, and the GPUs of a pod that shares them, where that loss decides alone.

A share goes to the GPU whose room future pods miss least. That is one that pods share already, or the free one that links
miss least. Then it leaves alone the GPU that is whole again the soonest; among nodes both count together. Ties go to a
sound GPU, then to the fullest, then to the lowest position. What fits is found out exactly, in GiB. What it is worth is
counted in thousandths of a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from topology.effort import Search
from topology.placement.plan import plan
from topology.placement.shares import SharedGpu, Shares, milli_of, no_room, none_is_large_enough
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import WITHOUT_GPUS, Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest
from topology.request.shares import SameGpu
from topology.request.suitability import outdated, shortage, suitable_gpus
from topology.value.coming_back import marginal_value, return_probability, sharing_penalty
from topology.value.fragmentation import DemandProfile, FreeCapacity, PodKind

FRAGMENTED_GPU = 500.0
"""What one fragmented GPU counts in the unit of free sets.

The last free GPU of a node counts 1 to 4 there. Capacity that nobody can use is lost for good, a broken island until its
pods end."""
_ROUNDED = 9
"""Digits of a loss that count: what two nodes lose alike is a tie, and not for the last bit of a sum to break."""


def less_fragmentation(
    verdict: Placement, pods_to_come: float, capacity: FreeCapacity, kind: PodKind, profile: DemandProfile
) -> Placement:
    """Return the placement with what the pods to come lose to fragmentation counted in its score; `pods_to_come` is λ."""
    lost = profile.value(capacity) - profile.value(capacity.without(kind, verdict.gpus))
    score = round(verdict.score - pods_to_come * FRAGMENTED_GPU * lost, _ROUNDED)
    return replace(verdict, score=score, value_lost=(verdict.value_lost or 0.0) + FRAGMENTED_GPU * lost)


def less_held_back(verdict: Placement, topology_class: TopologyClass, free: int, shares: Shares) -> Placement:
    """Return the placement with what it changes of the value of shared GPUs that come back, in its score.

    While values are not computed, none is taken to come back.
    """
    if topology_class.table is None or not shares.shared:
        return verdict
    value, pods = topology_class.value, shares.pods
    left = free & ~sum(1 << position for position in verdict.gpus)
    lost = sharing_penalty(value, left, pods) - sharing_penalty(value, free, pods)
    score = round(verdict.score - topology_class.weights.pods_to_come * lost, _ROUNDED)
    return replace(verdict, score=score, value_lost=(verdict.value_lost or 0.0) + lost)


def _rounded(lost: Sequence[float]) -> tuple[float, ...]:
    return tuple([round(each, _ROUNDED) for each in lost])


def place_shares(
    topology_class: TopologyClass,
    free: int,
    shares: Shares,
    request: GpuRequest,
    *,
    doubtful: int = 0,
    capacity: FreeCapacity | None = None,
    to_come: DemandProfile | None = None,
) -> Placement | Rejection:
    """Return the GPUs for a pod's shares, or why there are none.

    The largest share is placed first, each where least is lost of all places that leave room for the others.
    """
    if shares.refused is not None:
        return shares.refused
    suitable = topology_class.recall(_suitable, request)
    assert suitable is not None, "it takes no step"
    if isinstance(suitable, Rejection):
        return suitable
    usable, gib, class_ = shares.among(suitable), request.memory_gib, request.sharing_class
    together, apart = (sum(gib),), request.same_gpu is SameGpu.NEVER and len(gib) > 1
    places = _Places(topology_class, free, usable, request, doubtful, capacity, to_come)
    if not apart and usable.takes(together, class_, apart=False):
        return places.place(together, [0] * len(gib))
    wanted = together if request.same_gpu is SameGpu.REQUIRED else gib
    if len(wanted) > 1 and usable.takes(wanted, class_, apart=apart):
        return places.place(gib, range(len(gib)))
    largest_gib = max((size for i, size in enumerate(shares.share_gib) if suitable >> i & 1), default=0)
    if largest_gib < max(wanted) and not usable.beyond:  # what is used beyond shares comes back
        return none_is_large_enough(largest_gib, max(wanted))
    return no_room(usable, wanted, class_, apart=apart)


def _suitable(topology_class: TopologyClass, request: GpuRequest) -> Search[int | Rejection]:
    """Search for the GPUs that are each as asked for, shared or not; or why there are too few."""
    node, gpus = topology_class.node, len(request.memory_gib) if request.same_gpu is SameGpu.NEVER else 1
    if not node.gpus:
        return WITHOUT_GPUS
    if lack := outdated(node, request):
        return Rejection(Reason.DRIVER, *lack)
    if lack := shortage(node, replace(request, gpus=gpus)):
        return Rejection(Reason.UNSUITABLE_GPUS, *lack)
    yield from ()  # it takes no step
    return suitable_gpus(node, request)


class _Places:
    """For the GPUs of one pod."""

    def __init__(
        self,
        topology_class: TopologyClass,
        free: int,
        shares: Shares,
        request: GpuRequest,
        doubtful: int,
        capacity: FreeCapacity | None,
        to_come: DemandProfile | None,
    ) -> None:
        self._topology_class = topology_class
        self._free = free
        self._shares = shares
        self._class = request.sharing_class
        self._apart = request.same_gpu is SameGpu.NEVER
        self._doubtful = doubtful
        self._to_come = to_come
        self._capacity = capacity
        self._foresees = capacity is not None and to_come is not None and topology_class.table is not None
        """Whether it counts when shared GPUs come back."""
        self._cpu_milli = request.cpu_milli
        self._worth = 0.0
        """Of the capacity, before the share that is being placed."""
        self._sharing_penalty = 0.0
        """By shared GPUs, before it as well."""
        self._undecided: Rejection | None = None

    def place(self, gib: Sequence[int], which: Sequence[int]) -> Placement | Rejection:
        """Place shares of these sizes; `which` says for each share of the pod which of them it is in. They are known to fit."""
        positions, lost = [0] * len(gib), 0.0
        order = sorted(range(len(gib)), key=lambda share: (-gib[share], share))
        for rank, share in enumerate(order):
            rest = [gib[later] for later in order[rank + 1 :]]
            found = self._best(gib[share], rest)
            if self._undecided is not None:
                return self._undecided
            loss, positions[share] = found
            lost += loss
            if rest:
                self._take(positions[share], gib[share])
        of_share = tuple(positions[share] for share in which)
        score = round(-self._topology_class.weights.pods_to_come * lost, _ROUNDED)
        return Placement(tuple(dict.fromkeys(of_share)), None, None, score, lost, of_share)

    def _best(self, gib: int, rest: Sequence[int]) -> tuple[float, int]:
        """Return the best place for one share that leaves the rest theirs: what is lost by it, and the GPU.

        What is lost at once counts first, so that a share stays beside others for as long as there is room.
        """
        shares = self._shares
        self._worth = self._value(self._capacity)
        if self._foresees:
            self._sharing_penalty = sharing_penalty(self._topology_class.value, self._free, shares.pods)
        found: list[tuple[float, float, int, int, int]] = []
        alike: dict[tuple[int, int, int, float], int] = {}
        for gpu in shares.shared:
            if gpu.takes(self._class) and gpu.left_gib >= gib:
                doubts = self._doubtful >> gpu.position & 1
                looks = gpu.left_gib, shares.share_gib[gpu.position], doubts, self._put_off(gpu)
                alike.setdefault(looks, gpu.position)
        for (left_gib, _, doubts, put_off), position in alike.items():
            if self._leaves(position, gib, rest):
                found.append((self._fragmented(position, gib), put_off, doubts, left_gib, position))
        openable = shares.openable
        for size in {shares.share_gib[position] for position in openable}:
            among = [position for position in openable if shares.share_gib[position] == size]
            if size >= gib and self._leaves(among[0], gib, rest):
                found.append(self._begin(among, gib, size))
        if self._undecided is not None:
            return 0.0, 0
        at_once, later, *_, position = min(found, key=lambda each: (*_rounded(each[:2]), *each[2:]))
        return at_once + later, position

    def _leaves(self, position: int, gib: int, rest: Sequence[int]) -> bool:
        """Whether the rest finds room beside a share there."""
        if not rest:
            return True
        left = self._shares.taken(position, gib, self._class)
        if self._apart:
            left = left.among(~(1 << position))
        return left.takes(rest, self._class, apart=self._apart)

    def _begin(self, among: Sequence[int], gib: int, size: int) -> tuple[float, float, int, int, int]:
        """Return the free GPU of these that links miss least."""
        if self._foresees:
            lost_by = {position: _rounded(self._lost_by_links(position)) for position in among}
            least = min(lost_by.values())
            among = [position for position, lost in lost_by.items() if lost == least]
        best = sum(1 << position for position in among)
        single = plan(self._topology_class, self._free, GpuRequest.plain(1), 0, self._doubtful, ((best, 1),))
        if isinstance(single, Rejection):
            self._undecided = single
            return 0.0, 0.0, 0, 0, 0
        (position,) = single.gpus
        at_once, later = self._lost_by_links(position)
        return at_once + self._fragmented(position, gib), later, self._doubtful >> position & 1, size, position

    def _lost_by_links(self, position: int) -> tuple[float, float]:
        """Return what is lost where this free GPU begins to be shared: of what is free, and of what comes back."""
        lost, left = self._topology_class.value_lost(self._free, 1 << position), self._free & ~(1 << position)
        if not self._foresees:
            return lost, 0.0
        return lost, sharing_penalty(self._topology_class.value, left, self._shares.pods) - self._sharing_penalty

    def _put_off(self, gpu: SharedGpu) -> float:
        """Return what is lost by one pod more, for which the GPU comes back later."""
        if not gpu.pods or not self._foresees:
            return 0.0
        later = return_probability(gpu.pods) - return_probability(gpu.pods + 1)
        return later * marginal_value(self._topology_class.value, self._free, gpu.position)

    def _fragmented(self, position: int, gib: int) -> float:
        """Return what the pods to come lose of what is left beside links."""
        return FRAGMENTED_GPU * (self._worth - self._value(self._after(position, gib)))

    def _value(self, capacity: FreeCapacity | None) -> float:
        return self._to_come.value(capacity) if self._to_come is not None and capacity is not None else 0.0

    def _after(self, position: int, gib: int) -> FreeCapacity | None:
        if self._capacity is None:
            return None
        size = self._shares.share_gib[position]
        left_gib = next((gpu.left_gib for gpu in self._shares.shared if gpu.position == position), size)
        levels = [*self._capacity.gpu_milli]
        levels[position] = milli_of(left_gib - gib, size)
        return FreeCapacity(tuple(levels), self._capacity.cpu_milli - self._cpu_milli)

    def _take(self, position: int, gib: int) -> None:
        self._capacity, self._cpu_milli = self._after(position, gib), 0
        self._shares = self._shares.taken(position, gib, self._class)
        self._free &= ~(1 << position)
        if self._apart:
            self._shares = self._shares.among(~(1 << position))
