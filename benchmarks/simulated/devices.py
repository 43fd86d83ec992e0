"""What NVIDIA's DRA driver publishes of simulated nodes, and pods that claim its devices: of NVIDIA's class, or of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from benchmarks.processes.client import ApiClient, Json, for_all
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod
from extender.features.dra.guard import RESERVED

DRIVER: Final = "gpu.nvidia.com"
"""The name of the driver, and of its DeviceClass for whole GPUs."""
PLANNED_CLASS: Final = "gpus.gputopo.dev"
"""Matches no device, so that only a planner allocates its claims."""
_API: Final = "/apis/resource.k8s.io/v1"
_CLAIMS: Final = f"{_API}/namespaces/default/resourceclaims"
_AT_ONCE: Final = 24


async def publish_devices(api: ApiClient, nodes: Iterable[SimulatedNode]) -> None:
    """Create the two DeviceClasses, and a ResourceSlice for each node with all of its GPUs in their order."""
    of_nvidia = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    for name, expression in ((DRIVER, of_nvidia), (PLANNED_CLASS, "false")):
        document = {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
        (await api.call("POST", f"{_API}/deviceclasses", document)).ok()

    async def publish(node: SimulatedNode) -> None:
        (await api.call("POST", f"{_API}/resourceslices", resource_slice(node))).ok()

    await for_all(nodes, publish, _AT_ONCE)


async def reserve_class(api: ApiClient) -> None:
    """Let the API server refuse claims of NVIDIA's class, in the words of the chart's policy."""
    api_group = "/apis/admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["resourceclaims"],
    }
    expression = (
        f"object.spec.devices.requests.all(request, request.?exactly.?deviceClassName.orValue('') != '{DRIVER}')"
    )
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": RESERVED}],
    }
    policy = {"metadata": {"name": "reserved"}, "spec": spec}
    bound = {"metadata": {"name": "reserved"}, "spec": {"policyName": "reserved", "validationActions": ["Deny"]}}
    (await api.call("POST", f"{api_group}/validatingadmissionpolicies", policy)).ok()
    (await api.call("POST", f"{api_group}/validatingadmissionpolicybindings", bound)).ok()


def resource_slice(node: SimulatedNode) -> Json:
    """Return the slice of a node."""
    devices = [
        {
            "name": f"gpu-{gpu.index}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": gpu.uuid},
                "productName": {"string": gpu.model},
            },
            "capacity": {"memory": {"value": str(gpu.memory_bytes or 0)}},
        }
        for gpu in node.topology.gpus
    ]
    pool = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node.name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{node.name}-gpus"}, "spec": spec}


async def create_templates(api: ApiClient, device_class: str, sizes: Iterable[int]) -> None:
    """Create a claim template for so many devices of a class for each size."""
    for size in sorted(set(sizes)):
        requests = [{"name": "gpus", "exactly": {"deviceClassName": device_class, "count": size}}]
        template = {"metadata": {"name": f"gpus-{size}"}, "spec": {"spec": {"devices": {"requests": requests}}}}
        (await api.call("POST", f"{_API}/namespaces/default/resourceclaimtemplates", template)).ok()


def claiming_pod(name: str, size: int, **spec: object) -> Json:
    """Return a pod that has a claim for so many devices, by a template of `create_templates`."""
    claims = [{"name": "gpus", "resourceClaimTemplateName": f"gpus-{size}"}]
    pod = gpu_pod(name, 0, None, resourceClaims=claims, **spec)
    (main,) = pod["spec"]["containers"]
    main["resources"]["claims"] = [{"name": "gpus"}]
    return pod


async def devices_of_claims(api: ApiClient) -> Sequence[tuple[str, str]]:
    """Return pool and device of each device that a claim has, as often as claims have it."""
    claims = (await api.call("GET", _CLAIMS)).ok()["items"]
    allocations = [claim.get("status", {}).get("allocation") for claim in claims]
    return [
        (result["pool"], result["device"]) for given in allocations if given for result in given["devices"]["results"]
    ]


def given_twice(devices: Iterable[tuple[str, str]]) -> int:
    """Return how many devices several claims have."""
    return sum(count > 1 for count in Counter(devices).values())
