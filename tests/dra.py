"""What NVIDIA's DRA driver (0.4) publishes, and what kube-scheduler writes into a claim: as JSON, and as we read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from extender.cluster.objects.devices import DRIVER, ResourceClaim, ResourceSlice
from extender.kubernetes.documents import decoder

Json = dict[str, Any]
Publish = Callable[[str, Sequence[str]], list[Json]]
"""What a driver publishes of a node's GPUs."""
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


def whole_gpus(node: str, uuids: Sequence[str]) -> list[Json]:
    """Publish a node's GPUs, and nothing else."""
    return [resource_slice(node, [gpu(minor, uuid) for minor, uuid in enumerate(uuids)])]


MIG_PLACES: Final = {"1g.5gb": (19, 1, range(7)), "2g.10gb": (14, 2, (0, 2, 4)), "3g.20gb": (9, 4, (0, 4))}
"""Profile of an A100 → NVIDIA's number of it, memory slices, and where it can be."""
_MULTIPROCESSORS: Final = {1: 14, 2: 28, 4: 42, 8: 98}
"""By memory slices."""


def partitioned(node: str, uuids: Sequence[str]) -> list[Json]:
    """Publish GPUs as NVIDIA's driver does with DynamicMIG on Kubernetes 1.35: whole, in parts, and what they share apart."""
    slices = [resource_slice(node, [], name=f"{node}-counters", slices=len(uuids) + 1)]
    del slices[0]["spec"]["devices"]  # the API server allows only one of the two
    slices[0]["spec"]["sharedCounters"] = [
        {"name": f"gpu-{minor}-counter-set", "counters": _counters(0, 8)} for minor in range(len(uuids))
    ]
    for minor, uuid in enumerate(uuids):
        devices = [_taking(gpu(minor, uuid), minor, 0, 8)]
        for profile, (number, size, places) in MIG_PLACES.items():
            for start in places:
                device = mig(minor, uuid, start)
                device["name"] = f"gpu-{minor}-mig-{profile.replace('.', '')}-{number}-{start}"
                device["attributes"]["profile"] = {"string": profile}
                devices.append(_taking(device, minor, start, size))
        slices.append(resource_slice(node, devices, name=f"{node}-{minor}", slices=len(uuids) + 1))
    return slices


def static_mig(minor: int, parent: str, start: int) -> Json:
    """Publish a slice that an administrator has made: it has a UUID, and its driver counts nothing."""
    device = mig(minor, parent, start)
    device["attributes"]["uuid"] = {"string": f"MIG-{parent.removeprefix('GPU-')}-{start}"}
    return device | {"capacity": {"memory": {"value": "4864Mi"}, f"memorySlice{start}": {"value": "1"}}}


def _taking(device: Json, minor: int, start: int, size: int) -> Json:
    consumed = {"counterSet": f"gpu-{minor}-counter-set", "counters": _counters(start, size)}
    return device | {"consumesCounters": [consumed]}


def _counters(start: int, size: int) -> Json:
    memory = {f"memory-slice-{number}": {"value": "1"} for number in range(start, start + size)}
    return {"multiprocessors": {"value": str(_MULTIPROCESSORS[size])}, **memory}


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
