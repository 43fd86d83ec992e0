"""ResourceClaims as the plugin reads them: those that the extender allocates have a pod, whose GPUs are in a ledger, too.

What reads them takes 5 ms to import, and few clusters have any.
"""

from __future__ import annotations

from extender.cluster.caches.resource_claims import ResourceClaims
from extender.cluster.objects.devices import ResourceClaim


def holdings_of(claim: ResourceClaim) -> ResourceClaim:
    """Return what a claim holds; of those that the extender allocates also class and pod."""
    from extender.features.dra import requests

    return requests.holdings_of(claim)


def _is_ours(claim: ResourceClaim) -> bool:
    from extender.features.dra.requests import is_ours

    return is_ours(claim)


def recognise(claims: ResourceClaims) -> None:
    """Let the cache tell claims that the extender allocates from others."""
    claims.allocated_here, claims.trimmed = _is_ours, holdings_of
