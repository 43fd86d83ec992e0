"""What the containers of one pod have of GPUs: each GPU as a whole, or so many GiB of its memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from topology.annotations.records import Claim, PlacementRecord, Sharer
from topology.request.shares import side_by_side


@dataclass(frozen=True, slots=True)
class Part:
    """What one container has of one GPU."""

    container: str
    memory_gib: int | None = None
    """`None`: all of it."""


Parts: TypeAlias = Mapping[str, tuple[Part, ...]]
"""GPU → what containers have of it, by container."""


@lru_cache(maxsize=1024)
def all_of_it(container: str) -> tuple[Part, ...]:
    """Return what the container of a whole GPU has; the same for nearly all GPUs of a large cluster."""
    return (Part(container),)


def whole(gpus: Mapping[str, str]) -> Parts:
    """Return GPUs that containers have as a whole, by GPU."""
    return {gpu: all_of_it(container) for gpu, container in gpus.items()}


def of_claims(claims: Iterable[Claim]) -> Parts:
    """Return what one pod's claims say."""
    return _by_gpu((claim.gpu, claim.container, claim.memory_gib) for claim in claims)


def of_record(record: PlacementRecord, started: Iterable[tuple[str, bool]]) -> Parts:
    """Return what a placement says, side by side: a GPU that serves an init container first is the later one's.

    `started` are the containers in the order in which they start, and whether they are init containers; what is written of
    others counts as well.
    """
    order = dict(started)
    order = {name: False for name in record.containers if name not in order} | order
    if record.memory_gib:
        memory = [(name, record.memory_gib.get(name, 0), init) for name, init in order.items()]
        return _by_gpu((record.containers[name][0], name, gib) for name, gib in side_by_side(memory))
    return {gpu: all_of_it(name) for name in order for gpu in record.containers.get(name, ())}


def of_sharers(seen: Iterable[tuple[str, Sharer]]) -> Parts:
    """Return what the agent saw under one pod's name; a namesake's container of that name counts with it."""
    most = Counter[tuple[str, str]]()
    for gpu, sharer in seen:
        most[gpu, sharer.container] += sharer.parts
    return _by_gpu((gpu, container, gib) for (gpu, container), gib in most.items())


def together(*several: Parts) -> Parts:
    """Return all of these; where they differ about one container on one GPU, the larger part."""
    most: dict[tuple[str, str], int | None] = {}
    for gpu, part in ((gpu, part) for parts in several for gpu, of_gpu in parts.items() for part in of_gpu):
        key = gpu, part.container
        most[key] = larger(most[key], part.memory_gib) if key in most else part.memory_gib
    return _by_gpu((gpu, container, gib) for (gpu, container), gib in most.items())


def larger(one: int | None, other: int | None) -> int | None:
    """Return the larger of two parts of a GPU.

    >>> larger(10, 20), larger(10, None)
    (20, None)
    """
    return None if one is None or other is None else max(one, other)


def gib_of(parts: Parts) -> int:
    """Return what shares add up to; whole GPUs count nothing."""
    return sum(part.memory_gib or 0 for of_gpu in parts.values() for part in of_gpu)


def are_shares(parts: Parts) -> bool:
    """Whether none of it is a whole GPU."""
    return all(part.memory_gib is not None for of_gpu in parts.values() for part in of_gpu)


def has_one_gpu_each(parts: Parts) -> bool:
    """Whether no container has parts of two GPUs, as a record can say it."""
    containers = [part.container for of in parts.values() for part in of]
    return len(containers) == len(set(containers))


def containers_of(parts: Parts) -> dict[str, tuple[str, ...]]:
    """Return container → GPUs.

    >>> containers_of({"GPU-b": all_of_it("main"), "GPU-a": all_of_it("main")})
    {'main': ('GPU-a', 'GPU-b')}
    """
    gpus_of: dict[str, list[str]] = {}
    for gpu, container in sorted((gpu, part.container) for gpu, of in parts.items() for part in of):
        gpus_of.setdefault(container, []).append(gpu)
    return {name: tuple(gpus_of[name]) for name in sorted(gpus_of)}


def _by_gpu(takings: Iterable[tuple[str, str, int | None]]) -> dict[str, tuple[Part, ...]]:
    by_gpu: dict[str, tuple[Part, ...]] = {}
    for gpu, container, gib in takings:
        more = all_of_it(container) if gib is None else (Part(container, gib),)
        by_gpu[gpu] = tuple(sorted((*by_gpu[gpu], *more), key=_name)) if gpu in by_gpu else more
    return by_gpu


def _name(part: Part) -> str:
    return part.container
