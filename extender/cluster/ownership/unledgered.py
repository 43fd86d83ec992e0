"""What is known to be held on a node, and the ledger does not say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from extender.cluster.objects.claims import going_together
from extender.cluster.ownership.holdings import Holding
from extender.cluster.ownership.standing import Standing
from topology.annotations.records import Claim, Holder, Sharer


def unledgered_of(
    claims: Sequence[tuple[Claim, Standing]],
    holdings: Sequence[Holding],
    holders: Mapping[str, Holder],
    sharers: Mapping[str, tuple[Sharer, ...]],
) -> list[Claim]:
    """Return a claim for each GPU, or share, that is known to be held, and that no standing claim covers.

    A pod with all its claims is left out, whatever its record says: the ledger has been corrected since. One that is gone
    has nothing left to tell of it but what else is claimed for it, and the agent, who sees its containers.
    """
    standing = [claim for claim, how in claims if how is not Standing.FREE]
    missing = [claim for held in holdings if not held.has_all_claims for claim in held.claims()]
    unledgered = [*missing, *_left_behind(claims, holdings, holders, sharers)]
    return going_together([*standing, *reversed(unledgered)])[len(standing) :] if unledgered else []


def _left_behind(
    claims: Sequence[tuple[Claim, Standing]],
    holdings: Sequence[Holding],
    holders: Mapping[str, Holder],
    sharers: Mapping[str, tuple[Sharer, ...]],
) -> Iterator[Claim]:
    """Yield a claim for each GPU that the agent saw with a pod that is gone, and of which another claim stands."""
    gone = {(claim.namespace, claim.name): claim for claim, standing in claims if standing is Standing.GONE}
    for held in holdings if gone else ():
        gone.pop(held.pod.key, None)
    if not gone:
        return
    for gpu, who in ((gpu, who) for gpu, who in holders.items() if gpu not in sharers):
        if claim := gone.get((who.namespace, who.name)):
            yield replace(
                claim, gpu=gpu, container=who.container, memory_gib=None, sharing_class="", compute_percent=None
            )
    for gpu, sharer in ((gpu, sharer) for gpu, several in sharers.items() for sharer in several):
        if claim := gone.get((sharer.namespace, sharer.name)):
            yield replace(claim, gpu=gpu, container=sharer.container, memory_gib=sharer.parts)
