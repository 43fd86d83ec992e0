"""Checks an allocation against all that it has to agree with, just before it is written: the API server checks almost nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from extender.cluster.objects.devices import ResourceClaim, ResourceSlice
from extender.features.dra.claim_spec import DeviceClass
from extender.features.dra.inventory import DeviceId
from extender.features.dra.selectors import Selectors


class InvalidAllocation(Exception):
    """An allocation that must not be written; says what is wrong."""


def validate(
    allocation: Mapping[str, Any],
    claim: ResourceClaim,
    device_class: DeviceClass,
    node: str,
    slices: Iterable[ResourceSlice],
    taken: Mapping[DeviceId, str],
    uuids: Sequence[str],
    selectors: Selectors,
) -> None:
    """Check `status.allocation` as it is about to be written; raises `InvalidAllocation`.

    Args:
        allocation: As JSON.
        claim: The newest version of the claim, without an allocation.
        device_class: Ours.
        node: Where the pod goes.
        slices: All slices of the node's pools.
        taken: Device → the claim that holds it or is about to, without this claim.
        uuids: The GPUs that the ledger names for this claim.
        selectors: Evaluates expressions.

    """
    raise NotImplementedError
