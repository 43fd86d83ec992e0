"""What NVIDIA's DRA driver (0.4) publishes, and what kube-scheduler writes into a claim: as JSON, and as we read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from extender.cluster.objects.devices import DRIVER, ResourceClaim, ResourceSlice
from extender.kubernetes.documents import decoder

Json = dict[str, Any]
MIG_PROFILE: Final = "1g.5gb"


def gpu(minor: int, uuid: str, *taints: Json) -> Json:
    """Publish a whole GPU, named by its minor number."""
    device = {"name": f"gpu-{minor}", "attributes": {"uuid": {"string": uuid}, **_common("gpu", minor)}}
    capacity = {"memory": {"value": "40Gi"}}
    return device | {"capacity": capacity} | ({"taints": [*taints]} if taints else {})


def mig(minor: int, parent: str, start: int) -> Json:
    """Publish a slice that is made when it is asked for: it has no UUID before, only its parent's."""
    attributes = {"parentUUID": {"string": parent}, "profile": {"string": MIG_PROFILE}, **_common("mig", minor)}
    return {"name": f"gpu-{minor}-mig-1g5gb-19-{start}", "attributes": attributes}


def vfio(number: int) -> Json:
    """Publish a GPU for virtual machines, which is no NVML device."""
    return {"name": f"gpu-vfio-{number}", "attributes": _common("vfio", number)}


def _common(kind: str, minor: int) -> Json:
    return {
        "type": {"string": kind},
        "productName": {"string": "NVIDIA A100-SXM4-40GB"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Ampere"},
        "cudaComputeCapability": {"version": "8.0.0"},
        "driverVersion": {"version": "580.95.5"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{minor + 1:02x}:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{minor:02x}"},
    }


def resource_slice(
    node: str, devices: Sequence[Json], *, name: str = "", generation: int = 1, slices: int = 1, driver: str = DRIVER
) -> Json:
    """Return one slice of a node's pool, which is named after the node."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": slices},
            "devices": list(devices),
        },
    }


def allocated(
    name: str,
    node: str,
    *devices: str,
    driver: str = DRIVER,
    admin: bool = False,
    share: str = "",
    anywhere: bool = False,
) -> Json:
    """Return a claim that was given these devices of a node; `anywhere`: without saying where they are."""
    results = [
        {"request": "gpus", "driver": driver, "pool": node, "device": device}
        | ({"adminAccess": True} if admin else {})
        | ({"shareID": share} if share else {})
        for device in devices
    ]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    selector = {} if anywhere else {"nodeSelector": {"nodeSelectorTerms": [term]}}
    return waiting(name) | {"status": {"allocation": {"devices": {"results": results}, **selector}}}


def waiting(name: str) -> Json:
    """Return a claim that was given nothing yet, or nothing any more."""
    metadata = {"name": name, "namespace": "ml", "uid": f"claim-{name}", "resourceVersion": "1"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": {}}}


def read_slice(item: Json) -> ResourceSlice:
    """Read a slice as the extender does."""
    return decoder(ResourceSlice)(msgspec.json.encode(item))


def read_claim(item: Json) -> ResourceClaim:
    """Read a claim as the extender does."""
    return decoder(ResourceClaim)(msgspec.json.encode(item))
