"""The best set of a node's free GPUs for a request, or the reason why there is none.

It is exact. Of all sets of the free GPUs that satisfy the request those as near as the pod prefers come first, then the
highest predicted bandwidth. For pods that request it, most GPUs near a NIC come next. Ties, and all sets for pods that do
not communicate, go to the set that leaves more value, then to fewer NUMA nodes. Next come fewer doubtful GPUs, and for
pods of a group the nearer affinity and the better rails. Last come the fullest NUMA nodes and the lowest positions. So
neither a doubtful GPU nor a rail ever costs a pod bandwidth, or the pods to come value. Plans are memoised per class.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, replace
from typing import TypeAlias

from topology.bandwidth.predict import Bandwidth, ring_order
from topology.bandwidth.rings import members_of
from topology.effort import Search
from topology.node.links import Affinity
from topology.placement.rails import NO_RAILS, Rails
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import UNDECIDED, WITHOUT_GPUS, Placement, Reason, Rejection
from topology.request.gpu_request import Communication, GpuRequest, NicAffinity
from topology.request.suitability import Lack, outdated, shortage, suitable_gpus, without_nic
from topology.value.score import score
from topology.value.symmetry import lowest_first

CUTS_PER_STEP = 16
CUT_STEPS = 20
"""Of saying what one set tears apart."""
SETS_WEIGHED = 16
"""Sets of equal bandwidth whose remainder is valued; each costs about a millisecond the first time."""


Parts: TypeAlias = tuple[tuple[int, int], ...]
"""Masks of GPUs that do not overlap, and how many a pod gets of each; empty: any GPUs."""


def plan(
    topology_class: TopologyClass,
    free: int,
    request: GpuRequest,
    must: int = 0,
    doubtful: int = 0,
    parts: Parts = (),
    rails: Rails = NO_RAILS,
) -> Placement | Rejection:
    """Return the best placement of the request on the free GPUs (bit mask over positions), or why there is none.

    Exact; a repeated question is a table look-up. `must` are those of the free GPUs that have to be among the chosen, `doubtful`
    those that are chosen last among equals. Where the class's effort is bounded and the search takes more, the answer is
    `UNDECIDED` until it has ended in the background. If that is for the sake of rails alone, they do not count until
    then.
    """
    doubtful = doubtful and doubtful & free & ~must
    is_silent = (
        request.gpus > 1 and request.communication is Communication.NONE
    )  # of one GPU that says nothing of the network
    rails = NO_RAILS if is_silent else rails.among(free, must)
    if rails is not NO_RAILS:
        found = topology_class.recall(_search, free, request, must, doubtful, parts, rails)
        if found is not None:
            return found
    return topology_class.recall(_search, free, request, must, doubtful, parts, NO_RAILS) or UNDECIDED


def planned(
    topology_class: TopologyClass, free: int, request: GpuRequest, parts: Parts = ()
) -> Search[Placement | Rejection]:
    """Search for `plan`, as part of another search."""
    return topology_class.searched(_search, free, request, 0, 0, parts, NO_RAILS)


def _search(
    topology_class: TopologyClass,
    free: int,
    request: GpuRequest,
    must: int,
    doubtful: int,
    parts: Parts,
    rails: Rails,
) -> Search[Placement | Rejection]:
    node, size = topology_class.node, request.gpus
    if not node.gpus:
        return WITHOUT_GPUS
    if lack := outdated(node, request):
        return _lacking(Reason.DRIVER, lack)
    if lack := shortage(node, request):
        return _lacking(Reason.UNSUITABLE_GPUS, lack)
    suitable = suitable_gpus(node, request)
    if request.nic is NicAffinity.REQUIRED:
        suitable &= topology_class.near_nic
        if suitable.bit_count() < size:
            return _lacking(Reason.NIC, without_nic(suitable.bit_count(), size))
    if must & ~suitable:
        return Rejection(Reason.UNSUITABLE_GPUS, "a GPU that has to be among them is not as asked for")
    if must.bit_count() > size:
        return Rejection(Reason.TOO_FEW_FREE, f"pod needs {size} GPUs, and {must.bit_count()} have to be among them")
    usable = free & suitable
    if parts:
        usable &= sum(part for part, _ in parts)
    if usable.bit_count() < size or any((usable & part).bit_count() < count for part, count in parts):
        return _too_few(usable.bit_count(), suitable.bit_count(), size)
    if size == 0:
        return Placement((), None, None, 0.0)
    marks = free, doubtful, *rails
    tie_breaks = _TieBreaks(topology_class, tuple(usable & part for part, _ in parts) or (usable,), doubtful, rails)
    if size == 1:
        return (yield from _best_single(tie_breaks, free, must or usable, request, marks))
    sets = yield from _sets(topology_class, usable, size, must, parts, marks)
    return (yield from _best_many(tie_breaks, free, usable, request, must, sets))


def _sets(
    topology_class: TopologyClass, usable: int, size: int, must: int, parts: Parts, marks: tuple[int, ...]
) -> Search[list[int]]:
    if len(parts) < 2:
        return (yield from topology_class.sets(usable, size, must, marks))
    found = [0]
    for part, count in parts:
        # What could be exchanged if there were this part alone cannot be beside the others.
        here = yield from topology_class.sets(usable & part, count, must & part, None)
        found = [one | other for one in found for other in here]
    return found


@dataclass(frozen=True, slots=True)
class _TieBreaks:
    """What tells GPUs apart that are alike otherwise: doubts and rails."""

    topology_class: TopologyClass
    pools: tuple[int, ...]
    """Of each mask any GPU may be taken for another one that is just like it."""
    doubtful: int
    rails: Rails

    def spared(self, mask: int) -> int:
        """Return these GPUs, or those of their pools that are just like them, sound and on better rails."""
        for pool in self.pools:
            mask = mask & ~pool | self.topology_class.spared(mask & pool, pool, self.doubtful, self.rails)
        return mask

    def against(self, mask: int) -> tuple[int, int, int, int]:
        """Return what speaks against these GPUs, or others just like them: how many are doubtful, and what their rails cost.

        Before rails comes how far apart they are: a pod that is content with any affinity does not get a worse one for them.
        """
        if not self.doubtful and self.rails is NO_RAILS:
            return 0, 0, 0, 0
        spared = self.spared(mask)
        is_ring = self.rails is not NO_RAILS and mask.bit_count() > 1
        distance = self.topology_class.predict(mask)[1].distance if is_ring else 0
        return (spared & self.doubtful).bit_count(), distance, *self.rails.cost(spared)

    def apart(self, mask: int, free: int) -> tuple[int, ...]:
        """Return what tells sets of equal value apart: NUMA nodes, doubtful GPUs, rails, free GPUs in those nodes, positions."""
        numa_nodes, free_there = self.topology_class.spread(mask, free)
        return numa_nodes, *self.against(mask), free_there, -lowest_first(mask)


def _best_single(
    tie_breaks: _TieBreaks, free: int, usable: int, request: GpuRequest, marks: tuple[int, ...]
) -> Search[Placement | Rejection]:
    topology_class = tie_breaks.topology_class
    sets = yield from topology_class.sets(usable, 1, marks=marks)
    near_nic = [mask for mask in sets if mask & topology_class.near_nic] if request.nic else []
    chosen = yield from _least_loss(tie_breaks, free, near_nic or sets)
    lost = yield from topology_class.loss(free, chosen)
    gpus = members_of(tie_breaks.spared(chosen))
    return Placement(gpus, None, None, score(request, None, None, lost, topology_class.weights), lost)


def _best_many(
    tie_breaks: _TieBreaks, free: int, usable: int, request: GpuRequest, must: int, sets: list[int]
) -> Search[Placement | Rejection]:
    topology_class = tie_breaks.topology_class
    fastest_gb_per_s = 0.0
    best: tuple[float, ...] = ()
    tied: list[int] = []
    for mask in sets:
        yield
        bandwidth, affinity = topology_class.predict(mask)
        if request.required is not None and not affinity.meets(request.required):
            continue
        fastest_gb_per_s = max(fastest_gb_per_s, bandwidth.point)
        if bandwidth.point < (request.min_bandwidth_gb_per_s or 0.0):
            continue
        merit = _merit(topology_class, mask, bandwidth, affinity, request)
        if merit > best:
            best, tied = merit, []
        if merit == best:
            tied.append(mask)
    if not tied:
        if fastest_gb_per_s:
            return _too_slow(fastest_gb_per_s, request)
        return (yield from _too_far(topology_class, usable, request, must))
    chosen = yield from _least_loss(tie_breaks, free, tied)
    bandwidth, affinity = topology_class.predict(chosen)
    lost = yield from topology_class.loss(free, chosen)
    yield
    order = ring_order(topology_class.wiring, tie_breaks.spared(chosen))
    scored = score(request, bandwidth, affinity, lost, topology_class.weights)
    return Placement(order, affinity, bandwidth, scored, lost)


def _merit(
    topology_class: TopologyClass, mask: int, bandwidth: Bandwidth, affinity: Affinity, request: GpuRequest
) -> tuple[float, ...]:
    """Return what is compared first; sets of equal merit are told apart by what they leave to others."""
    if request.communication is Communication.NONE:
        return ()
    near_nic = (mask & topology_class.near_nic).bit_count() if request.nic else 0
    return request.is_content_with(affinity), bandwidth.point, near_nic


def _least_loss(tie_breaks: _TieBreaks, free: int, sets: list[int]) -> Search[int]:
    """Search for the set that leaves most value, then the one told in `_TieBreaks.apart`.

    Of many sets, `SETS_WEIGHED` that tear the fewest GB/s off the GPUs left behind are weighed. So are as many of those
    with the fewest doubtful GPUs, and of these on the best rails. A set stands for all that differ only by GPUs that are
    alike. The soundest of them counts, and of equally sound ones the one on the best rails.
    """
    if len(sets) == 1:
        return sets[0]
    topology_class, unmarked = tie_breaks.topology_class, replace(tie_breaks, doubtful=0, rails=NO_RAILS)
    kept: list[tuple[float, tuple[int, ...], int]] = []
    sound: list[tuple[int, float, tuple[int, ...], int]] = []
    on_rails: list[tuple[tuple[int, ...], float, tuple[int, ...], int]] = []
    for mask in sets:
        yield
        topology_class.meter.steps += CUT_STEPS + mask.bit_count() * (free & ~mask).bit_count() // CUTS_PER_STEP
        cut_gb_per_s, apart = topology_class.cut_gb_per_s(mask, free), unmarked.apart(mask, free)
        insort(kept, (cut_gb_per_s, apart, mask))
        del kept[SETS_WEIGHED:]
        against = tie_breaks.against(mask)
        if tie_breaks.doubtful:
            insort(sound, (against[0], cut_gb_per_s, apart, mask))
            del sound[SETS_WEIGHED:]
        if tie_breaks.rails is not NO_RAILS:
            insort(on_rails, (against, cut_gb_per_s, apart, mask))
            del on_rails[SETS_WEIGHED:]
    weighed = []
    for mask in dict.fromkeys(each[-1] for ranked in (kept, sound, on_rails) for each in ranked):
        value = yield from topology_class.valued(free & ~mask)
        weighed.append((-round(value, 9), tie_breaks.apart(mask, free), mask))
    return min(weighed)[-1]


def _lacking(reason: Reason, lack: Lack) -> Rejection:
    return Rejection(reason, lack.message, lack.figures, lack.remedy)


def _too_few(usable: int, suitable: int, size: int) -> Rejection:
    message = f"fewer than {size} suitable GPUs are free" if usable else "no suitable GPU is free"
    figures = f"{usable} of {suitable} are free, pod needs {size}"
    return Rejection(Reason.TOO_FEW_FREE, message, figures, "wait or ask for fewer", resolvable=True)


def _too_slow(fastest_gb_per_s: float, request: GpuRequest) -> Rejection:
    message = f"no {request.gpus} free GPUs are predicted to reach {request.min_bandwidth_gb_per_s:.12g} GB/s"
    figures = f"the best reach {fastest_gb_per_s:.4g} GB/s"
    return Rejection(Reason.BANDWIDTH, message, figures, "wait or lower min-bandwidth", resolvable=True)


def _too_far(topology_class: TopologyClass, usable: int, request: GpuRequest, must: int) -> Search[Rejection]:
    """Say how large a set of the wanted affinity is free, which is the number people need."""
    wanted = request.required
    assert wanted is not None
    words = {
        Affinity.NVLINK: "an NVLink ring",
        Affinity.PCIE_SWITCH: "one PCIe switch",
        Affinity.NUMA_NODE: "one NUMA node",
    }
    most = "no two do"
    for size in range(request.gpus - 1, max(1, must.bit_count() - 1), -1):
        if (yield from _reaches(topology_class, usable, size, must, wanted)):
            most = f"at most {size} do"
            break
    given = " with those given" if must else ""
    message = f"no {request.gpus} free GPUs share {words[wanted]}{given}"
    remedy = "wait or let it relax"
    return Rejection(Reason.AFFINITY, message, most, remedy, resolvable=True)


def _reaches(topology_class: TopologyClass, usable: int, size: int, must: int, wanted: Affinity) -> Search[bool]:
    for mask in (yield from topology_class.sets(usable, size, must)):
        yield
        if topology_class.predict(mask)[1].meets(wanted):
            return True
    return False
