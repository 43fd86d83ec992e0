"""What a pod asks for that takes parts of GPUs: how many GiB each of its containers has, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias

from topology.annotations import keys
from topology.errors import RequestError
from topology.request.counts import Quantities, gpu_count

MAX_SHARES = 6
"""Containers of one pod that may ask for a share: whether they all fit is found out exactly."""
MAX_COMPUTE_PERCENT = 100
SAYS_NOTHING = (
    keys.REQUIRED_AFFINITY,
    keys.PREFERRED_AFFINITY,
    keys.MIN_BANDWIDTH,
    keys.RELAX_AFTER,
    keys.COMMUNICATION,
    keys.NIC_AFFINITY,
)
"""Annotations about links, which one GPU has none of."""
Asked: TypeAlias = tuple[str, int, bool]
"""Name of a container, its GiB, and whether it is an init container that ends before those after it start."""


class SameGpu(StrEnum):
    """Whether the shares of one pod are on one GPU."""

    PREFERRED = "preferred"
    """Where they all fit on one; else container by container."""
    REQUIRED = "required"
    NEVER = "never"
    """Each has a GPU of its own."""


def gib_of(container: str, limits: Quantities, requests: Quantities) -> int:
    """Return how many GiB of a GPU a container asks for; raises `RequestError`.

    >>> gib_of("main", {"gputopo.dev/gpu-memory-gib": "10"}, None)
    10
    """
    try:
        return gpu_count(container, limits, requests, keys.SHARE_RESOURCE)
    except RequestError as error:
        reason = error.reason.replace("whole number of GPUs", "whole number of GiB")
        raise RequestError(error.key, f"{reason}: write digits alone, such as 10 for 10 GiB") from error


def side_by_side(asked: Iterable[Asked]) -> tuple[tuple[str, int], ...]:
    """Return container and GiB of each share, so that the sum is what the pod needs at its widest moment.

    `asked` is in the order in which the containers start. What an init container needs beyond the containers after it is a share
    under its own name.

    >>> side_by_side([("sidecar", 2, False), ("load", 30, True), ("main", 20, False)])
    (('sidecar', 2), ('main', 20), ('load', 10))
    """
    asked = [*asked]
    shares = [(name, gib) for name, gib, init in asked if gib and not init]
    running, widest, widest_name = 0, 0, ""
    for name, gib, init in asked:
        if init and gib and running + gib > widest:
            widest, widest_name = running + gib, name
        running += 0 if init else gib
    return (*shares, (widest_name, widest - running)) if widest > running else tuple(shares)


def same_gpu(said: SameGpu, asked: Sequence[Asked]) -> SameGpu:
    """Return what holds of the pod's shares; equal needs are equal values.

    An init container has its share on the GPU of the containers after it: what it leaves there is theirs. Raises `RequestError`
    where each container is to have a GPU of its own then.
    """
    asking = [each for each in asked if each[1]]
    if len(asking) < 2:
        return SameGpu.PREFERRED
    if not any(init for _, _, init in asking):
        return said
    if said is SameGpu.NEVER:
        raise RequestError(keys.SAME_GPU, "an init container has its share on the GPU of the containers after it")
    return SameGpu.REQUIRED if len(side_by_side(asking)) > 1 else SameGpu.PREFERRED


def check(asked: Sequence[Asked], gpus: int, annotations: Mapping[str, Any]) -> None:
    """Raise `RequestError` where shares, whole GPUs and annotations do not go together."""
    shares = sum(gib > 0 for _, gib, _ in asked)
    if not shares:
        lonely = next((key for key in (keys.COMPUTE_PERCENT, keys.SAME_GPU) if key in annotations), None)
        if lonely is not None:
            raise RequestError(lonely, f"says nothing without {keys.SHARE_RESOURCE}")
        return
    if gpus:
        raise RequestError(keys.SHARE_RESOURCE, "the pod also asks for whole GPUs or MIG slices, and gets one kind")
    if shares > MAX_SHARES:
        raise RequestError(
            keys.SHARE_RESOURCE, f"{shares} containers ask for a share, at most {MAX_SHARES} of a pod may"
        )
    idle = next((key for key in SAYS_NOTHING if key in annotations), None)
    if idle is not None:
        raise RequestError(idle, f"says nothing of a share of a GPU ({keys.SHARE_RESOURCE})")
