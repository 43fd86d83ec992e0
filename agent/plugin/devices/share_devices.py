"""The names of share devices, `UUID::number`, each of which stands for one GiB of a GPU, and how many are told briefly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby

from agent.plugin.devices.offers import REPLICA

MAX_GIB = 4096
"""Of one GPU; more than any has."""


@lru_cache(maxsize=256)
def share_devices(gpu: str, gib: int) -> tuple[str, ...]:
    """Return a GPU's share devices, in order.

    >>> share_devices("GPU-a", 2)
    ('GPU-a::0', 'GPU-a::1')
    """
    return tuple(f"{gpu}{REPLICA}{number}" for number in range(gib))


def number_of(device: str) -> int:
    """Return the number of a share device."""
    return int(device.rpartition(REPLICA)[2])


def brief(devices: Iterable[str]) -> list[str]:
    """Return devices in order, those of one GPU as ranges of their numbers.

    >>> brief(["GPU-b", *share_devices("GPU-a", 3), "GPU-a::7"])
    ['GPU-a::0-2,7', 'GPU-b']
    """
    numbers: dict[str, list[int]] = {}
    whole = set[str]()
    for device in devices:
        gpu, mark, number = device.partition(REPLICA)
        if mark and number.isdecimal():
            numbers.setdefault(gpu, []).append(int(number))
        else:
            whole.add(device)
    return sorted([*whole, *(f"{gpu}{REPLICA}{','.join(_runs(sorted(of)))}" for gpu, of in numbers.items())])


def spelled_out(names: Iterable[str]) -> Iterator[str]:
    """Yield the devices that `brief` told; raises `ValueError`.

    >>> [*spelled_out(["GPU-a::0-1,7", "GPU-b"])]
    ['GPU-a::0', 'GPU-a::1', 'GPU-a::7', 'GPU-b']
    """
    for name in names:
        gpu, mark, runs = name.partition(REPLICA)
        if not mark:
            yield name
            continue
        for run in runs.split(","):
            first, _, last = run.partition("-")
            end = int(last or first)
            if not 0 <= end < MAX_GIB:
                raise ValueError(f"no share device: {name[:80]}")
            yield from (f"{gpu}{REPLICA}{number}" for number in range(int(first), end + 1))


def _runs(numbers: list[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"
