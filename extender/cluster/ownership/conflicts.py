"""GPUs that several live pods have who cannot have one together, and what pods have of which nobody can say where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.parts import Part, Parts, together
from extender.cluster.ownership.holdings import Holding


def conflicts_of(holdings: Sequence[Holding], memory_gib: Mapping[str, int]) -> dict[str, tuple[GpuPod, ...]]:
    """Return the GPUs that live pods cannot have together, with all pods there.

    They can where each has a share, all of one class, and no more than the GPU has of memory. A pod that has not started, and
    whose GPU was seen with another, will get other GPUs.

    Args:
        holdings: Of the live pods of a node.
        memory_gib: GPU → its whole memory; what is cut into slices is not among them.

    """
    seen = {gpu for held in holdings if held.seen for gpu in held.gpus}
    there: dict[str, list[tuple[Holding, tuple[Part, ...]]]] = {}
    for held in holdings:
        named = held.gpus if held.seen else _all_named(held)
        waits = not held.seen and held.pod.pod.status.phase != "Running"
        for gpu, parts in named.items():
            if not (waits and gpu in seen):
                there.setdefault(gpu, []).append((held, parts))
    return {
        gpu: tuple(held.pod for held, _ in several)
        for gpu, several in sorted(there.items())
        if len(several) > 1 and not _go_together(several, memory_gib.get(gpu, 0))
    }


def _all_named(held: Holding) -> Parts:
    if held.gpus == held.claimed and held.pod.is_placed_on(held.gpus):
        return held.gpus
    return together(held.gpus, held.claimed, held.pod.placed or {})


def _go_together(several: Sequence[tuple[Holding, tuple[Part, ...]]], memory_gib: int) -> bool:
    amounts = [part.memory_gib for _, parts in several for part in parts]
    is_shared = all(amount is not None for amount in amounts)
    one_class = len({held.sharing_class for held, _ in several}) == 1
    return is_shared and one_class and sum(amount or 0 for amount in amounts) <= memory_gib


@dataclass(frozen=True, slots=True)
class Hidden:
    """What pods have that bypassed us, of which nobody knows on which GPUs it is."""

    whole: int = 0
    """GPUs."""
    shares: int = 0
    """How many there are."""
    gib: int = 0
    """What the shares add up to."""

    @property
    def gpus(self) -> int:
        """How many GPUs are not free because of it, at most."""
        return self.whole + self.shares


NOTHING_HIDDEN: Final = Hidden()


def hidden_of(holdings: Iterable[Holding]) -> Hidden:
    """Return what these pods have of GPUs that nobody can name."""
    found = [held for held in holdings if held.hidden and not held.pod.profile]
    if not found:
        return NOTHING_HIDDEN
    in_parts = [held for held in found if held.pod.shares]
    return Hidden(
        whole=sum(held.hidden or 0 for held in found if not held.pod.shares),
        shares=sum(map(_hidden_shares, in_parts)),
        gib=sum(held.hidden or 0 for held in in_parts),
    )


def hidden_slices(holdings: Iterable[Holding]) -> tuple[tuple[str, int], ...]:
    """Return how many slices these have that nobody can name, by profile."""
    found = Counter[str]()
    for held in holdings:
        if held.pod.profile and held.hidden:
            found[held.pod.profile] += held.hidden
    return tuple(sorted(found.items()))


def _hidden_shares(held: Holding) -> int:
    named = {part.container for parts in (held.gpus, held.claimed) for of in parts.values() for part in of}
    return max(1, len(held.pod.shares) - len(named))
