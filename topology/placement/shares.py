"""What shares may take of a node's GPUs, whole GiB for whole GiB: values, and nothing of what is better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from topology.placement.verdict import Reason, Rejection
from topology.value.coming_back import MANY_PODS
from topology.value.fragmentation import WHOLE_GPU_MILLI, FreeCapacity

HeldShare: TypeAlias = tuple[int, int, str]
"""Position, GiB, class."""

OFF = Rejection(
    Reason.SHARING, "GPUs are not shared there", remedy="let its agent share GPUs (sharing.gpus), or ask for whole ones"
)
ONLY_ENFORCE = Rejection(Reason.SHARING, "GPUs are shared only in mode enforce", remedy="run its agent in mode enforce")
NOT_NOW = Rejection(
    Reason.SHARING, "GPUs cannot be shared there just now", remedy="kubectl gputopo node tells why", resolvable=False
)


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """A GPU that some pods share."""

    position: int
    left_gib: int
    """What no share has, and nothing else uses; less than nothing where more is used than there is."""
    sharing_class: str | None = ""
    """Of its shares; `None`: the last has ended, and the GPU is not whole again yet, so that shares of any class may go there."""
    pods: int = 1
    """How many share it, at most `MANY_PODS`; 0 where the last has ended."""

    @property
    def room_gib(self) -> int:
        """How large a share of the right class it takes."""
        return max(0, self.left_gib)

    def takes(self, sharing_class: str) -> bool:
        """Whether shares of this class may go there."""
        return self.sharing_class is None or self.sharing_class == sharing_class


@dataclass(frozen=True, slots=True)
class Shares:
    """What shares may take on one node."""

    share_gib: tuple[int, ...] = ()
    """By position: what all shares of a GPU may take together; 0: it is never shared."""
    shared: tuple[SharedGpu, ...] = ()
    """Those that pods share now, by position."""
    shareable: int = 0
    """Free GPUs that pods may share from now on, as a mask over positions."""
    more: int | None = None
    """How many of these may be shared beside those that are; `None`: all."""
    beyond: int = 0
    """GPUs with memory in use that no share explains."""
    refused: Rejection | None = None
    """Why no share is given at all."""

    @property
    def openable(self) -> tuple[int, ...]:
        """Positions of the free GPUs of which one more may be shared."""
        mask = self.shareable if self.more != 0 else 0
        return tuple([position for position in range(mask.bit_length()) if mask >> position & 1])

    def room_gib(self, position: int, sharing_class: str) -> int:
        """Return how large a share of this class the GPU takes; 0 for none."""
        for gpu in self.shared:
            if gpu.position == position:
                return gpu.room_gib if gpu.takes(sharing_class) else 0
        return self.share_gib[position] if self.shareable >> position & 1 and self.more != 0 else 0

    @property
    def pods(self) -> tuple[tuple[int, int], ...]:
        """Position of each shared GPU, and how many pods share it."""
        return tuple([(gpu.position, gpu.pods) for gpu in self.shared])

    def of_free(self, free: int) -> Shares:
        """Return the same where no other GPUs are free than these."""
        return self if self.shareable & free == self.shareable else replace(self, shareable=self.shareable & free)

    def among(self, mask: int) -> Shares:
        """Return the same of these GPUs alone."""
        if mask == (1 << len(self.share_gib)) - 1:
            return self
        kept = tuple(gpu for gpu in self.shared if mask >> gpu.position & 1)
        return replace(self, shared=kept, shareable=self.shareable & mask, beyond=self.beyond & mask)

    def beside(self, gpus: int, held: Iterable[HeldShare]) -> Shares:
        """Return what is left beside GPUs and shares that are meant for others; where there is no room for one, nothing is."""
        left, on_gpus = self.among(~gpus) if gpus else self, dict[tuple[int, str], list[int]]()
        for position, gib, sharing_class in held:
            on_gpus.setdefault((position, sharing_class), []).append(gib)
        for (position, sharing_class), sizes in on_gpus.items():
            room_gib, gib = left.room_gib(position, sharing_class), sum(sizes)
            if room_gib:
                left = left.taken(position, gib, sharing_class, len(sizes))
            if room_gib < gib:
                left = left.among(~(1 << position))
        return left

    def given_back(self, held: Iterable[HeldShare]) -> tuple[Shares, int]:
        """Return what is left once these shares have gone, and the GPUs that no pod shares then, as a mask.

        Such a GPU is about to be whole, and takes shares of any class until then. One that something else uses, too, is none.
        """
        held = tuple(held)
        if not held:
            return self, 0
        back, shared, emptied = Counter[int](), list[SharedGpu](), 0
        for position, gib, _ in held:
            back[position] += gib
        for gpu in self.shared:
            left_gib = gpu.left_gib + back[gpu.position]
            if gpu.position not in back:
                shared.append(gpu)
            elif left_gib >= self.share_gib[gpu.position]:
                shared.append(SharedGpu(gpu.position, left_gib, None, 0))
                emptied |= 1 << gpu.position
            else:
                shared.append(replace(gpu, left_gib=left_gib))
        return replace(self, shared=tuple(shared)), emptied

    def only(self, held: Iterable[HeldShare]) -> Shares:
        """Return room for exactly these shares; none at all where one of them has no room."""
        left, wanted = self, Counter[int]()
        for position, gib, sharing_class in held:
            if left.room_gib(position, sharing_class) < gib:
                return replace(self, shared=(), shareable=0)
            left = left.taken(position, gib, sharing_class)
            wanted[position] += gib
        shared = (replace(gpu, left_gib=wanted[gpu.position]) for gpu in left.shared if gpu.position in wanted)
        return replace(left, shared=tuple(shared), shareable=0)

    def taken(self, position: int, gib: int, sharing_class: str, pods: int = 1) -> Shares:
        """Return what is left beside so many pods with so much together."""
        others = [gpu for gpu in self.shared if gpu.position != position]
        begins = len(others) == len(self.shared)
        untouched = SharedGpu(position, self.share_gib[position], pods=0)
        before = untouched if begins else next(gpu for gpu in self.shared if gpu.position == position)
        now = SharedGpu(position, before.left_gib - gib, sharing_class, min(before.pods + pods, MANY_PODS))
        return replace(
            self,
            shared=tuple(sorted((*others, now), key=lambda gpu: gpu.position)),
            shareable=self.shareable & ~(1 << position),
            more=self.more - 1 if begins and self.more is not None else self.more,
        )

    def filled(self, places: Sequence[int], gib: Sequence[int], sharing_class: str) -> tuple[Shares, int]:
        """Return what is left where a pod's shares find room in these places, over and over, and how often they do."""
        wanted = Counter[int]()
        for position, each in zip(places, gib, strict=True):
            wanted[position] += each
        often = min(self.room_gib(position, sharing_class) // each for position, each in wanted.items())
        left = self
        for position, each in wanted.items():
            left = left.taken(position, often * each, sharing_class, often)
        return left, often

    def takes(self, gib: Sequence[int], sharing_class: str, *, apart: bool) -> bool:
        """Whether all these shares have a place, each on a GPU of its own (`apart`) or on any; exact."""
        begun = [gpu.room_gib for gpu in self.shared if gpu.takes(sharing_class)]
        free = sorted((self.share_gib[position] for position in self.openable), reverse=True)
        bins = sorted([*begun, *free[: self.more]], reverse=True)
        wanted = sorted(gib, reverse=True)
        if len(bins) >= len(wanted) and all(map(int.__ge__, bins, wanted)):
            return True
        return not apart and sum(wanted) <= sum(bins) and _packs(tuple(bins), tuple(wanted), set())


NO_SHARES = Shares(refused=OFF)


def _packs(bins: tuple[int, ...], wanted: tuple[int, ...], hopeless: set[tuple[tuple[int, ...], int]]) -> bool:
    """Whether the shares fit into the bins, the largest first; bins of equal size are tried once."""
    if not wanted:
        return True
    if (bins, len(wanted)) in hopeless:
        return False
    largest, rest = wanted[0], wanted[1:]
    for size in dict.fromkeys(bins):
        if size >= largest:
            left = [*bins]
            left.remove(size)
            smaller = tuple(
                each for each in sorted([*left, size - largest], reverse=True) if not rest or each >= rest[-1]
            )
            if _packs(smaller, rest, hopeless):
                return True
    hopeless.add((bins, len(wanted)))
    return False


def none_is_large_enough(largest_gib: int, share_gib: int) -> Rejection:
    """Return what a node lacks whose GPUs are all too small."""
    return Rejection(
        Reason.UNSUITABLE_GPUS,
        f"no suitable GPU has {share_gib} GiB to share",
        f"the largest has {largest_gib}",
        "ask for less or add such nodes",
    )


def no_room(shares: Shares, gib: Sequence[int], sharing_class: str, *, apart: bool) -> Rejection:
    """Return the refusal of shares that find no place now."""
    largest_gib = max((shares.room_gib(i, sharing_class) for i in range(len(shares.share_gib))), default=0)
    of_class = f" for class {sharing_class}" if sharing_class else ""
    if len(gib) == 1:
        message = f"no GPU has {gib[0]} GiB left{of_class}"
    elif apart:
        message = f"no {len(gib)} GPUs have room for a share each{of_class}"
    else:
        message = f"the GPUs have no room for {len(gib)} shares of {sum(gib)} GiB{of_class}"
    if shares.beyond:
        message += ", beside memory that is used beyond shares"
    figures = f"the most that one has is {largest_gib}"
    return Rejection(Reason.TOO_FEW_FREE, message, figures, "wait or ask for less", resolvable=True)


def milli_of(left_gib: int, share_gib: int) -> int:
    """Return how much of a shared GPU is left, in thousandths; less than all of it.

    >>> milli_of(30, 78), milli_of(0, 78)
    (384, 0)
    """
    return min(max(0, left_gib) * WHOLE_GPU_MILLI // share_gib, WHOLE_GPU_MILLI - 1) if share_gib else 0


def capacity_of(gpus: int, free: int, shares: Shares, cpu_milli: int) -> FreeCapacity:
    """Return the free capacity of a node: free GPUs, what is left of those that are shared, and CPU."""
    whole = FreeCapacity.of_whole(gpus, free, cpu_milli)
    if not shares.shared:
        return whole
    levels = [*whole.gpu_milli]
    for gpu in shares.shared:
        levels[gpu.position] = milli_of(gpu.left_gib, shares.share_gib[gpu.position])
    return FreeCapacity(tuple(levels), cpu_milli)
