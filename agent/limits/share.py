"""A share of a GPU as its limit is set: by the ledger, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from topology.annotations.records import Ledger

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Share:
    """What one container has of one GPU."""

    uid: str
    """Its pod's."""
    namespace: str
    name: str
    container: str
    gpu: str
    """UUID."""
    memory_gib: int
    compute_percent: int | None = None
    """A ceiling; `None`: none."""


def shares_of(ledger: Ledger) -> tuple[Share, ...]:
    """Return the shares that a ledger promises."""
    return tuple(
        Share(
            claim.uid, claim.namespace, claim.name, claim.container, claim.gpu, claim.memory_gib, claim.compute_percent
        )
        for claim in ledger.claims
        if claim.memory_gib is not None
    )


def bytes_by_gpu(shares: Iterable[Share]) -> dict[str, int]:
    """Return GPU → the bytes that these shares have of it together.

    >>> bytes_by_gpu([Share("u", "ns", "a", "main", "GPU-1", 2), Share("u", "ns", "a", "side", "GPU-1", 1)]) == {"GPU-1": 3 * GIB}
    True
    """
    total: Counter[str] = Counter()
    for share in shares:
        total[share.gpu] += share.memory_gib * GIB
    return dict(total)
