"""How many GPUs, or slices of which MIG profile, the containers of a pod ask for; a pod asks for one kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from topology.annotations import keys
from topology.errors import RequestError

Quantities: TypeAlias = Mapping[str, str | int] | None
"""Of a container, by resource, as Kubernetes writes them."""

_COUNT = re.compile(r"[0-9]{1,9}")
_ONE_KIND = "and a pod gets whole GPUs or slices of one MIG profile"


def asked_of(
    container: str, limits: Quantities, requests: Quantities, resource: str = keys.GPU_RESOURCE
) -> tuple[int, str]:
    """Return how many GPUs or slices a container asks for, and of which profile; raises `RequestError`, also for several kinds.

    >>> asked_of("main", {"nvidia.com/mig-1g.10gb": "2"}, None), asked_of("main", {"nvidia.com/gpu": "4"}, None)
    ((2, '1g.10gb'), (4, ''))
    """
    for asked in (limits, requests):
        for name in asked or ():
            if name.startswith(keys.MIG_PREFIX):
                return _one_kind(container, limits, requests, resource)
    return gpu_count(container, limits, requests, resource), ""


def _one_kind(container: str, limits: Quantities, requests: Quantities, resource: str) -> tuple[int, str]:
    names = {name for asked in (limits, requests) for name in asked or () if name.startswith(keys.MIG_PREFIX)}
    counts = {name: gpu_count(container, limits, requests, name) for name in sorted({resource, *names})}
    wanted = [(name, count) for name, count in counts.items() if count]
    if len(wanted) > 1:
        raise RequestError(wanted[1][0], f"container {container!r} also asks for {wanted[0][0]}, {_ONE_KIND}")
    name, count = wanted[0] if wanted else (resource, 0)
    return count, "" if name == resource else name.removeprefix(keys.MIG_PREFIX)


def one_profile(profiles: Sequence[str]) -> str:
    """Return the profile of all containers, empty for GPUs; raises `RequestError` where they do not ask for the same."""
    profile = profiles[0] if profiles else ""
    for other in profiles:
        if other != profile:
            raise RequestError(keys.MIG_PREFIX + (other or profile), f"not all containers do, {_ONE_KIND}")
    return profile


def gpu_count(container: str, limits: Quantities, requests: Quantities, resource: str = keys.GPU_RESOURCE) -> int:
    """Return how many of a resource a container asks for; extended resources have equal limits and requests.

    Raises `RequestError` for anything but a plain count: `1.5`, `-1`, `1k`, digits of other scripts.
    """
    value = (limits or {}).get(resource, (requests or {}).get(resource, 0))
    text = str(value)
    if isinstance(value, bool) or not _COUNT.fullmatch(text):
        raise RequestError(
            resource, f"container {container!r} asks for {text[:32]!r}, which is not a whole number of GPUs"
        )
    return int(text)
