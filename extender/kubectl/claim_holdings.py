"""ResourceClaims as the plugin reads them: those that the extender allocates have a pod, whose GPUs are in a ledger, too.

Whether it allocates any shows in the chart's DeviceClasses, which come and go with `dra.enabled`.

What reads them takes 5 ms to import, and few clusters have any.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from extender.cluster.objects.devices import ResourceClaim
from extender.cluster.state import ClusterState
from extender.features.dra.claim_spec import OUR_CLASS
from extender.kubectl.form import say

_NOT_KNOWN: Final = (
    "deviceclasses cannot be listed: GPUs that a DRA driver alone publishes count as free, as if `dra.enabled` were set"
)


def holdings_of(claim: ResourceClaim) -> ResourceClaim:
    """Return what a claim holds; of those that the extender allocates also class and pod."""
    from extender.features.dra import requests

    return requests.holdings_of(claim)


def _is_ours(claim: ResourceClaim) -> bool:
    from extender.features.dra.requests import is_ours

    return is_ours(claim)


def recognise(state: ClusterState, classes: Mapping[str, str | None] | None) -> None:
    """Let the state tell claims that the extender allocates from others, and whether there will be more.

    `classes` are the DeviceClasses with the resource that each maps; `None`: they cannot be read.
    """
    from extender.features.dra.caches import SliceCache

    state.claims.allocated_here, state.claims.trimmed = _is_ours, holdings_of
    state.claims.allocates_new = None if classes is None else OUR_CLASS in classes
    slices = SliceCache()
    state.claims.slices.hearers.append(slices)
    state.claims.parts_of = lambda node: slices.inventory(node).parts
    state.map_to_dra(state.resource in (classes or {}).values())


def say_what_is_not_known(state: ClusterState) -> None:
    """Say on standard error that free GPUs may not be, where DeviceClasses would tell and cannot be read."""
    if state.claims.allocates_new is None and any(view.by_claim for view in state.views.values()):
        say(_NOT_KNOWN, to=sys.stderr)
