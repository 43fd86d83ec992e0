"""Pods that request devices by claims of ours, as the planner reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from extender.cluster.objects.devices import ResourceClaim
from extender.cluster.objects.kinds import Pod, ResourceRequirements
from extender.features.dra.requests import DeviceDemand
from topology.annotations import keys
from topology.errors import RequestError
from topology.node.slices import as_asked


def as_gpu_pod(pod: Pod, claims: Sequence[ResourceClaim], devices: DeviceDemand, resource: str) -> Pod:
    """Return the pod as if its first container requested the devices of its claims by resources, for the planner to read.

    It has the annotations of these claims, which a controller copies from templates. An annotation of the pod counts before a
    claim's.

    Raises `RequestError` for a pod that also requests the resource, and where claims contradict each other.
    """
    wanted = keys.MIG_PREFIX + as_asked(devices.profile) if devices.profile else resource
    containers = [*(pod.spec.init_containers or ()), *pod.spec.containers]
    for name in dict.fromkeys((resource, wanted)):
        if any(
            name in {**(container.resources.limits or {}), **(container.resources.requests or {})}
            for container in containers
        ):
            raise RequestError(name, "requested in addition to a ResourceClaim of our class")
    first, *others = pod.spec.containers
    limits = {**(first.resources.limits or {}), wanted: str(devices.gpus)}
    first = replace(first, resources=ResourceRequirements(limits, first.resources.requests))
    metadata = replace(pod.metadata, annotations=annotations_of(pod, claims))
    return replace(pod, metadata=metadata, spec=replace(pod.spec, containers=[first, *others]))


def annotations_of(pod: Pod, claims: Iterable[ResourceClaim]) -> dict[str, str]:
    """Return the pod's annotations and ours of its claims; raises `RequestError` where two claims disagree."""
    of_pod = pod.metadata.annotations or {}
    merged = dict[str, str]()
    for claim in claims:
        for key, value in (claim.metadata.annotations or {}).items():
            if not key.startswith(keys.USER_PREFIX) or key in of_pod:
                continue
            if merged.setdefault(key, value) != value:
                raise RequestError(key, "the pod's ResourceClaims have different values")
    return {**merged, **of_pod}
