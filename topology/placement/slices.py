"""The MIG slices that a pod gets on a node, or why it gets none: so that GPUs that are hardly in use stay so.

The more of a GPU is free, the more each further slice of it is missed. A GPU without any pod can be cut again, or be made
whole. So a free GPU is worth the square of its free part, and the slices whose loss is least are chosen. For one slice
that is the fullest GPU. Ties go to fewer doubtful slices, then to the lowest positions. It is exact.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from operator import or_

from topology.bandwidth.rings import members_of
from topology.effort import Search, finish
from topology.node.slices import MEMORY_SLICES, overlaps, parts_of_gpus
from topology.node.status import MigStrategy
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import ASK_WHO, UNDECIDED, UNKNOWN_GPUS, Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest, NicAffinity
from topology.request.suitability import outdated, shortage_of_slices, suitable_slices, without_nic

_ROUNDED = 9
Choice = tuple[float, int, tuple[int, ...]]
"""What is lost, how many of them are doubtful, positions among the slices; the least is the best."""


def is_about_slices(strategy: MigStrategy, request: GpuRequest) -> bool:
    """Whether such a request is met with slices on a node that offers them so."""
    return bool(request.profile) or strategy is MigStrategy.SINGLE


def wanted_devices(topology_class: TopologyClass, strategy: MigStrategy, request: GpuRequest) -> int:
    """Return the GPUs or slices of the kind that is asked for, as a mask over positions."""
    gpus = len(topology_class.node)
    if not is_about_slices(strategy, request):
        return (1 << gpus) - 1
    return _of_profile(topology_class, request) << gpus


def place_slices(
    topology_class: TopologyClass,
    strategy: MigStrategy,
    free: int,
    request: GpuRequest,
    *,
    must: int = 0,
    doubtful: int = 0,
    unknown: int = 0,
    plugin_chooses: bool = False,
) -> Placement | Rejection:
    """Return the slices for a request, or why there are none; a repeated question is a table look-up.

    Masks are over positions. With `plugin_chooses` the slices are a guess, and the score is what is to be expected.
    """
    if lack := _refused(topology_class, strategy, request):
        return lack
    gpus = len(topology_class.node)
    wanted = _of_profile(topology_class, request)
    about = (
        free >> gpus & wanted,
        free >> gpus,
        request.of_links,
        must >> gpus,
        doubtful >> gpus,
        unknown,
        plugin_chooses,
    )
    verdict = topology_class.recall(_search, *about)
    return UNDECIDED if verdict is None else verdict  # other searches may have taken all steps of this call


def _refused(topology_class: TopologyClass, strategy: MigStrategy, request: GpuRequest) -> Rejection | None:
    if strategy is MigStrategy.NONE and topology_class.node.slices:
        return Rejection(
            Reason.UNSUITABLE_GPUS,
            "the device plugin offers no MIG slices",
            remedy="give it the MIG strategy mixed or single",
        )
    if request.profile and strategy is MigStrategy.SINGLE:
        return Rejection(
            Reason.UNSUITABLE_GPUS,
            "the node's MIG slices are offered as GPUs",
            remedy="ask for GPUs, or use the MIG strategy mixed",
        )
    return None


def _of_profile(topology_class: TopologyClass, request: GpuRequest) -> int:
    slices = topology_class.node.slices
    if not request.profile:
        return (1 << len(slices)) - 1
    return finish(topology_class.searched(_profiles)).get(request.profile, 0)


def _profiles(topology_class: TopologyClass) -> Search[dict[str, int]]:
    """Search for the slices of each profile, as masks."""
    yield from ()
    masks = dict[str, int]()
    for i, each in enumerate(topology_class.node.slices):
        masks[each.asked_as] = masks.get(each.asked_as, 0) | 1 << i
    return masks


def _search(
    topology_class: TopologyClass,
    free: int,
    all_free: int,
    request: GpuRequest,
    must: int,
    doubtful: int,
    unknown: int,
    plugin_chooses: bool,
) -> Search[Placement | Rejection]:
    suitable = yield from topology_class.searched(_suitable, request)
    if isinstance(suitable, Rejection):
        return suitable
    size, name = request.gpus, f"{request.profile or 'MIG'} slices"
    usable, among = (free | must) & suitable, (free | must)
    is_possible = usable.bit_count() >= size + unknown and not must & ~suitable and must.bit_count() <= size
    choice = None
    if is_possible:
        choice = yield from _least_missed(topology_class, usable, all_free | must, size, must, doubtful)
    if choice is None:
        few = f"fewer than {size} {name} are free" if usable else f"none of the {name} is free"
        message = f"too few {name} are free: {UNKNOWN_GPUS}" if unknown else few
        figures = f"{usable.bit_count()} of {suitable.bit_count()} are free, pod needs {size}"
        remedy = ASK_WHO if unknown else "wait or ask for fewer"
        return Rejection(Reason.TOO_FEW_FREE, message, figures, remedy, resolvable=True)
    if plugin_chooses and among & ~suitable:
        lack = shortage_of_slices(topology_class.node, among & ~suitable, request)
        message = (
            f"the device plugin may choose so that {lack.message}" if lack else "the device plugin may choose others"
        )
        return Rejection(Reason.UNSUITABLE_GPUS, message, remedy="in mode enforce gputopo chooses")
    lost, _, chosen = choice
    if plugin_chooses:
        lost = yield from _expected(topology_class, usable, all_free, size)
    gpus = len(topology_class.node)
    score = -topology_class.weights.pods_to_come * lost
    return Placement(tuple(gpus + position for position in chosen), None, None, score, lost)


def _suitable(topology_class: TopologyClass, request: GpuRequest) -> Search[int | Rejection]:
    """Search for the slices that are as asked for, or for what the node lacks for so many."""
    yield from ()
    node, size, wanted = topology_class.node, request.gpus, _of_profile(topology_class, request)
    if lack := outdated(node, request):
        return Rejection(Reason.DRIVER, lack.message, lack.figures, lack.remedy)
    if wanted.bit_count() < size:
        few = f"fewer than {size}" if wanted else "no"
        message = f"node has {few} {request.profile or 'MIG'} slices"
        remedy = "cut GPUs so, or ask for slices that there are"
        return Rejection(Reason.NO_GPUS, message, _what_there_is(topology_class), remedy)
    if size > 1 and (request.required is not None or request.min_bandwidth_gb_per_s is not None):
        return Rejection(Reason.AFFINITY, "MIG slices cannot reach each other", remedy="ask for one slice, or for GPUs")
    if lack := shortage_of_slices(node, wanted, request):
        return Rejection(Reason.UNSUITABLE_GPUS, lack.message, lack.figures, lack.remedy)
    suitable = suitable_slices(node, request) & wanted
    if request.nic is NicAffinity.REQUIRED:
        suitable &= sum(
            1 << i for i, each in enumerate(node.slices) if topology_class.near_nic >> node.positions[each.gpu] & 1
        )
        if suitable.bit_count() < size:
            lack = without_nic(suitable.bit_count(), size)
            return Rejection(Reason.NIC, lack.message, lack.figures, lack.remedy)
    return suitable


def _what_there_is(topology_class: TopologyClass) -> str:
    counts = Counter(each.profile for each in topology_class.node.slices)
    return "it has " + (", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none")


@dataclass(frozen=True, slots=True)
class _Parts:
    """What each slice takes of its GPU."""

    by_gpu: tuple[int, ...]
    """The slices of each GPU, as a mask."""
    of_gpu: tuple[float, ...]
    """By slice; those of one GPU instance share its memory."""
    excluded: tuple[int, ...]
    """By slice: the others that cannot be had beside it, as a mask."""
    memory: tuple[int, ...]
    """By slice that is made on demand, of which several have the same memory: its place there, else 0."""

    def size(self, slices: int) -> float:
        """Return how much of a GPU these of its slices are."""
        members = members_of(slices)
        memory = reduce(or_, (self.memory[i] for i in members), 0)
        return memory.bit_count() / MEMORY_SLICES + sum(self.of_gpu[i] for i in members if not self.memory[i])

    def beside(self, free: int, taken: int) -> int:
        """Return which of the free slices are left beside those that are taken."""
        return free & ~reduce(or_, (self.excluded[i] for i in members_of(taken)), taken)


def _parts(topology_class: TopologyClass) -> Search[_Parts]:
    """Search for what each slice of a class takes: of hundreds that takes milliseconds."""
    yield from ()
    node = topology_class.node
    by_gpu: dict[int, int] = {}
    for i, each in enumerate(node.slices):
        by_gpu[each.gpu] = by_gpu.get(each.gpu, 0) | 1 << i
    memory = tuple(each.memory if each.on_demand else 0 for each in node.slices)
    excluded = tuple(sum(1 << j for j in others) for others in overlaps(node.slices))
    return _Parts(tuple(by_gpu.values()), parts_of_gpus(node.slices), excluded, memory)


def _least_missed(
    topology_class: TopologyClass, usable: int, free: int, size: int, must: int, doubtful: int
) -> Search[Choice | None]:
    """Search for the best choice of so many, if there is one: GPU by GPU, the best of each number of slices so far.

    Nodes, and choices one after the other, differ in few GPUs, so the ways to take slices of one are remembered.
    """
    parts = yield from topology_class.searched(_parts)
    best: dict[int, Choice] = {0: (0.0, 0, ())}
    for mine in parts.by_gpu:
        about = usable & mine, free & mine, must & mine, doubtful & usable & mine
        ways = yield from topology_class.searched(_ways, *about, size)
        reached: dict[int, Choice] = {}
        for before, choice in best.items():
            for way in ways:
                count = before + len(way[2])
                if count > size:
                    break
                after = round(choice[0] + way[0], _ROUNDED), choice[1] + way[1], choice[2] + way[2]
                if count not in reached or after < reached[count]:
                    reached[count] = after
        best = reached
    return best.get(size)


def _ways(
    topology_class: TopologyClass, usable: int, free: int, must: int, doubtful: int, most: int
) -> Search[tuple[Choice, ...]]:
    """Search for the best way to take each number of one GPU's slices, few to many."""
    parts = yield from topology_class.searched(_parts)
    ways, before, taken, left = list[Choice](), parts.size(free), 0, usable
    while True:
        if not must & ~taken:
            lost = before**2 - parts.size(parts.beside(free, taken)) ** 2
            ways.append((lost, (taken & doubtful).bit_count(), members_of(taken)))
        if not left or taken.bit_count() == most:
            return tuple(ways)
        room = parts.beside(free, taken)

        def cost(i: int, room: int = room) -> tuple[object, ...]:
            spoilt = sum(parts.of_gpu[j] for j in members_of(parts.excluded[i] & room))
            return not must >> i & 1, parts.of_gpu[i], round(spoilt, _ROUNDED), doubtful >> i & 1, i

        taken |= 1 << min(members_of(left), key=cost)
        left = parts.beside(usable, taken)


def _expected(topology_class: TopologyClass, usable: int, free: int, size: int) -> Search[float]:
    """Search for what is lost on average where any of these slices may be taken."""
    lost = list[float]()
    for i in members_of(usable):
        choice = yield from _least_missed(topology_class, 1 << i, free, 1, 0, 0)
        lost += [choice[0]] if choice else []
    return size * sum(lost) / len(lost)
