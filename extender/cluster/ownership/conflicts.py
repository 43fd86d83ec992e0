"""GPUs that several live pods have who cannot have one together, and what pods have of which nobody can say where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.parts import Part, Parts, together
from extender.cluster.ownership.holdings import Holding
from topology.node.silicon import Silicon


def conflicts_of(
    holdings: Sequence[Holding], memory_gib: Mapping[str, int], silicon: Silicon
) -> dict[str, tuple[GpuPod, ...]]:
    """Return the GPUs and slices that live pods cannot have together, with all pods on their silicon.

    They can where each has a share, all of one class, and no more than the GPU has of memory. A pod that has not started, and
    whose GPU was seen with another, will get other GPUs.

    Args:
        holdings: Of the live pods of a node.
        memory_gib: GPU → its whole memory; what is cut into slices is not among them.
        silicon: Says which devices are the same silicon.

    """
    seen = [gpu for held in holdings if held.seen for gpu in held.gpus]
    there: dict[str, list[tuple[Holding, tuple[Part, ...]]]] = {}
    for held in holdings:
        named = held.gpus if held.seen else _all_named(held)
        waits = not held.seen and held.pod.pod.status.phase != "Running"
        refused = silicon.excluded_by(seen) if waits else ()
        for gpu, parts in named.items():
            if gpu not in refused:
                there.setdefault(gpu, []).append((held, parts))
    conflicts = {
        gpu: tuple(held.pod for held, _ in several)
        for gpu, several in there.items()
        if len(several) > 1 and not _go_together(several, memory_gib.get(gpu, 0))
    }
    crossing = silicon.crossing(there)
    for gpu in crossing:
        excluded = silicon.excluded_by((gpu,))
        pods = {
            held.pod.uid: held.pod for gpu_across in crossing if gpu_across in excluded for held, _ in there[gpu_across]
        }
        if len(pods) > len(there[gpu]):  # one pod may have several of them
            conflicts[gpu] = tuple(pods[uid] for uid in sorted(pods))
    return dict(sorted(conflicts.items()))


def _all_named(held: Holding) -> Parts:
    if held.gpus == held.claimed and held.pod.is_placed_on(held.gpus):
        return held.gpus
    return together(held.gpus, held.claimed, held.pod.placed or {})


def _go_together(several: Sequence[tuple[Holding, tuple[Part, ...]]], memory_gib: int) -> bool:
    amounts = [part.memory_gib for _, parts in several for part in parts]
    is_shared = all(amount is not None for amount in amounts)
    one_class = len({held.sharing_class for held, _ in several}) == 1
    return is_shared and one_class and sum(amount or 0 for amount in amounts) <= memory_gib


def hidden_gpus(holdings: Iterable[Holding]) -> int:
    """Return how many GPUs are not free for what these have that nobody can name; a share takes one at most."""
    hiding = (held for held in holdings if held.hidden and not held.pod.profile)
    return sum(_hidden_shares(held) if held.pod.shares else held.hidden or 0 for held in hiding)


def hidden_gib(holdings: Iterable[Holding]) -> int:
    """Return what the shares add up to of which nobody knows on which GPUs they are."""
    return sum(held.hidden or 0 for held in holdings if held.pod.shares)


def hidden_slices(holdings: Iterable[Holding]) -> tuple[tuple[str, int], ...]:
    """Return how many slices these have that nobody can name, by profile."""
    hidden = Counter[str]()
    for held in holdings:
        if held.pod.profile and held.hidden:
            hidden[held.pod.profile] += held.hidden
    return tuple(sorted(hidden.items()))


def _hidden_shares(held: Holding) -> int:
    if held.is_elsewhere:
        return len(held.pod.shares)
    named = {part.container for parts in (held.gpus, held.claimed) for of in parts.values() for part in of}
    return max(1, len(held.pod.shares) - len(named))
