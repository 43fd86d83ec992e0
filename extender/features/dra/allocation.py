"""The allocation of a claim, as kube-scheduler writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from extender.cluster.objects.devices import ResourceClaim
from extender.features.dra.claim_spec import DeviceClass
from extender.features.dra.inventory import Gpu
from extender.features.dra.requests import DemandOption


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """What one claim is given."""

    claim: str
    """Namespace and name."""
    claim_uid: str
    node: str
    gpus: tuple[tuple[str, Gpu], ...]
    """Request and GPU of each result, in the order of requests."""
    status: Mapping[str, Any]
    """`status.allocation` as JSON."""


def allocate(
    option: DemandOption,
    claims: Sequence[ResourceClaim],
    device_class: DeviceClass,
    node: str,
    gpus: Sequence[Gpu],
    timestamp: str,
) -> tuple[ClaimAllocation, ...]:
    """Share the GPUs of a pod out among its claims and their requests, in order.

    Args:
        option: What the pod requests.
        claims: Its claims of our class, without an allocation.
        device_class: Ours.
        node: Where it goes.
        gpus: As many as it requests, in ring order.
        timestamp: Now, as Kubernetes writes it: `2026-11-29T12:00:00Z`.

    """
    raise NotImplementedError
