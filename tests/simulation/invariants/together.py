"""Who can have one GPU together: one pod as a whole, or shares of one class that add up to no more than there is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tests.simulation.world.hardware import SHARE_GIB


@dataclass(frozen=True, slots=True)
class Placed:
    """What a Binding said."""

    node: str
    containers: dict[str, tuple[str, ...]] | None
    """`None`: it came without a record."""
    ours: bool
    share_gib: int = 0
    """Of its GPU; 0: it has all of it."""
    sharing_class: str = ""

    @property
    def gpus(self) -> frozenset[str]:
        """All GPUs of the record."""
        return frozenset(gpu for gpus in (self.containers or {}).values() for gpu in gpus)

    def goes_with(self, share_gib: int, sharing_class: str) -> bool:
        """Whether a ledger can name both on one GPU, whatever they add up to; a share of 0 GiB is the whole."""
        return bool(self.share_gib and share_gib) and self.sharing_class == sharing_class


def why_not_together(pods: Collection[Placed]) -> str | None:
    """Return what is wrong where all of these have one GPU."""
    if len(pods) < 2:
        return None
    if not all(pod.share_gib for pod in pods):
        return "whole and shared" if any(pod.share_gib for pod in pods) else "given twice"
    if len(classes := {pod.sharing_class for pod in pods}) > 1:
        return f"shared by the classes {sorted(classes)}"
    taken = sum(pod.share_gib for pod in pods)
    return f"shared by {taken} GiB of {SHARE_GIB}" if taken > SHARE_GIB else None
