"""How many more claims can be written down on a node, and the refusal of a pod that needs more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from topology.placement.verdict import Placement, Reason, Rejection

LEDGER_FULL: Final = Rejection(
    Reason.LEDGER_FULL,
    "the node's GPU ledger has no room for the pod's claims",
    remedy="wait until pods of the node end, or use shorter names",
    resolvable=True,
)


@dataclass(frozen=True, slots=True)
class ClaimsLeft:
    """How many more claims there is room for; `None`: as many as the node has devices, or more."""

    whole: int | None = None
    """Of whole GPUs and slices."""
    shares: int | None = None

    def takes(self, placement: Placement) -> bool:
        """Whether the claims of a placement can be written down."""
        left = self.shares if placement.shares else self.whole
        return left is None or len(placement.shares or placement.gpus) <= left

    def plus(self, claims: int) -> ClaimsLeft:
        """Return the same where so many claims are replaced."""
        if self.whole is None and self.shares is None:
            return self
        return ClaimsLeft(
            None if self.whole is None else self.whole + claims,
            None if self.shares is None else self.shares + claims,
        )


PLENTY: Final = ClaimsLeft()
