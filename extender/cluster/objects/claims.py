"""Which claims one ledger can hold together."""

from __future__ import annotations

from collections.abc import Iterable

from topology.annotations.records import Claim


def going_together(claims: Iterable[Claim]) -> list[Claim]:
    """Return those that one ledger can hold beside all before them: each GPU as a whole, or shares of one class.

    Of one container there is one share of a GPU.
    """
    first: dict[str, Claim] = {}
    shares = set[tuple[str, str, str]]()
    kept = []
    for claim in claims:
        share = claim.gpu, claim.uid, claim.container
        if goes_with(claim, first.get(claim.gpu)) and share not in shares:
            first.setdefault(claim.gpu, claim)
            shares.add(share)
            kept.append(claim)
    return kept


def goes_with(claim: Claim, other: Claim | None) -> bool:
    """Whether a ledger can hold a claim beside another one on the same GPU, of another container."""
    if other is None:
        return True
    are_shares = claim.memory_gib is not None and other.memory_gib is not None
    return are_shares and claim.sharing_class == other.sharing_class
