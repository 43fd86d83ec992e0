"""The allocation of a claim, as kube-scheduler writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from extender.cluster.objects.devices import ResourceClaim
from extender.features.dra.claim_spec import DeviceClaim, DeviceClass, DeviceToleration
from extender.features.dra.inventory import PublishedDevice
from extender.features.dra.requests import DeviceDemand, DeviceRequest, is_for, read_devices


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """What one claim is given."""

    node: str
    gpus: tuple[tuple[str, PublishedDevice], ...]
    """Request and GPU of each result, in the order of requests."""
    status: Mapping[str, Any]
    """`status.allocation` as JSON."""


def allocate(
    demand: DeviceDemand,
    claims: Sequence[ResourceClaim],
    device_class: DeviceClass,
    node: str,
    gpus: Sequence[PublishedDevice],
    timestamp: str,
) -> tuple[ClaimAllocation, ...]:
    """Share the GPUs of a pod out among its claims and their requests, in order; raises `ValueError` for a wrong number.

    Args:
        demand: What the pod requests.
        claims: Its claims of our class, without an allocation.
        device_class: Ours.
        node: Where it goes.
        gpus: As many as it requests, in ring order.
        timestamp: Now, as Kubernetes writes it: `2026-11-29T12:00:00Z`.

    """
    if len(gpus) != demand.gpus:
        raise ValueError(f"{len(gpus)} GPUs for a pod that requests {demand.gpus}")
    rest = iter(gpus)
    shared = [(request, gpu) for request in demand.requests for gpu in islice(rest, request.count)]
    return tuple(
        _allocation(
            claim, device_class, node, [pair for pair in shared if pair[0].claim_uid == claim.metadata.uid], timestamp
        )
        for claim in claims
    )


def configuration(devices: DeviceClaim, device_class: DeviceClass, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the configuration of an allocation: that of the class, then the claim's, each for the requests that it is for.

    Args:
        devices: What the claim requests.
        device_class: Ours.
        names: The claim's requests as results have them: of `firstAvailable` with the alternative.

    """
    of_class = [{"source": "FromClass", **_opaque(item.opaque)} for item in device_class.spec.config or ()]
    of_claim = [
        {"source": "FromClaim", **_requests(item.requests or (), names), **_opaque(item.opaque)}
        for item in devices.config or ()
        if not item.requests or any(is_for(item.requests, name) for name in names)
    ]
    return [*of_class, *of_claim]


def node_selector(node: str) -> dict[str, Any]:
    """Return where devices of a node can be used."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def as_written(tolerations: Iterable[DeviceToleration]) -> list[dict[str, Any]]:
    """Return tolerations as a result has them, without fields that say nothing."""
    listed: list[dict[str, Any]] = [msgspec.to_builtins(toleration) for toleration in tolerations]
    return [{name: value for name, value in fields.items() if value not in ("", None)} for fields in listed]


def _allocation(
    claim: ResourceClaim,
    device_class: DeviceClass,
    node: str,
    shared: Sequence[tuple[DeviceRequest, PublishedDevice]],
    timestamp: str,
) -> ClaimAllocation:
    names = list(dict.fromkeys(request.name for request, _ in shared))
    devices: dict[str, Any] = {"results": [_result(request, gpu) for request, gpu in shared]}
    config = configuration(read_devices(claim), device_class, names)
    if config:
        devices["config"] = config
    status = {"devices": devices, "nodeSelector": node_selector(node), "allocationTimestamp": timestamp}
    gpus = tuple((request.name, gpu) for request, gpu in shared)
    return ClaimAllocation(node, gpus, status)


def _result(request: DeviceRequest, gpu: PublishedDevice) -> dict[str, Any]:
    result: dict[str, Any] = {
        "request": request.name,
        "driver": gpu.id.driver,
        "pool": gpu.id.pool,
        "device": gpu.id.name,
    }
    if request.tolerations:
        result["tolerations"] = as_written(request.tolerations)
    return result


def _requests(requests: Sequence[str], names: Iterable[str]) -> dict[str, Any]:
    """Return for which requests it is; nothing, where it is for all."""
    if not requests or all(is_for(requests, name) for name in names):
        return {}
    return {"requests": list(requests)}


def _opaque(opaque: object) -> dict[str, Any]:
    return {"opaque": msgspec.to_builtins(opaque)} if opaque is not None else {}
