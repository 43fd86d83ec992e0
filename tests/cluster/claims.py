"""NVIDIA's device classes, what its driver publishes of a node, and pods that claim devices, on a real control plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from extender.cluster.objects.devices import DRIVER
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.history import History
from tests.cluster.objects import Json
from tests.cluster.polling import until_none
from tests.dra import gpu, resource_slice

API = "/apis/resource.k8s.io/v1"
CLASSES, SLICES = f"{API}/deviceclasses", f"{API}/resourceslices"
CLAIMS, TEMPLATES = f"{API}/namespaces/default/resourceclaims", f"{API}/namespaces/default/resourceclaimtemplates"
ALL_CLAIMS = f"{API}/resourceclaims"
GPUS, SLICED = DRIVER, "mig.nvidia.com"
"""The classes of NVIDIA's chart that matter here."""
_NAMESPACE, _ADMIN_ACCESS = "/api/v1/namespaces/default", "resource.kubernetes.io/admin-access"


@contextmanager
def device_classes(plane: ControlPlane) -> Iterator[None]:
    """Have NVIDIA's classes and the controllers of claims for a `with` block; admin access is allowed."""
    for name, kind in ((GPUS, "gpu"), (SLICED, "mig")):
        expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
        selectors = [{"cel": {"expression": expression}}]
        plane.admin.post(CLASSES, {"metadata": {"name": name}, "spec": {"selectors": selectors}})
    plane.admin.patch(_NAMESPACE, {"metadata": {"labels": {_ADMIN_ACCESS: "true"}}})
    controllers = plane.start_controllers("resourceclaim-controller,garbage-collector-controller")
    try:
        yield
    finally:
        try:
            plane.admin.delete("/api/v1/namespaces/default/pods", gracePeriodSeconds="0")
            until_none(lambda: plane.admin.list(CLAIMS))
        finally:  # or each later test on this control plane fails, too
            controllers.stop()
            for collection in (CLASSES, SLICES, TEMPLATES):
                plane.admin.delete(collection)
            plane.admin.patch(_NAMESPACE, {"metadata": {"labels": {_ADMIN_ACCESS: None}}})


def publish(api: Api, node: str, uuids: Sequence[str], *more: Json, generation: int = 1) -> None:
    """Publish a node's GPUs, with minor numbers in another order than the GPUs have, as minors may."""
    devices = [gpu(minor, uuid) for minor, uuid in enumerate(_by_minor(uuids))]
    name = f"{node}-{generation}"
    api.post(SLICES, resource_slice(node, [*devices, *more], name=name, generation=generation))


def published(uuids: Sequence[str], device: str) -> str:
    """Return the UUID of a device that was published so."""
    return _by_minor(uuids)[int(device.removeprefix("gpu-"))]


def _by_minor(uuids: Sequence[str]) -> list[str]:
    """Put the second GPU first: kube-scheduler takes the first device, and we the first GPU, so that both want the same ones."""
    return [*uuids[1:], *uuids[:1]]


def claiming(api: Api, pod: Json, count: int, device_class: str = GPUS, **request: Any) -> Json:
    """Return the pod with a claim for so many devices, by a template of its name."""
    name = pod["metadata"]["name"]
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count, **request}
    spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
    api.post(TEMPLATES, {"metadata": {"name": name}, "spec": {"spec": spec}})
    pod["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": name}]
    pod["spec"]["containers"][0].setdefault("resources", {})["claims"] = [{"name": "gpus"}]
    return pod


def allocated(api: Api) -> list[str]:
    """Return the devices that kube-scheduler has written into claims."""
    statuses = [each.get("status", {}).get("allocation") for each in api.list(CLAIMS)]
    return sorted(result["device"] for found in statuses if found for result in found["devices"]["results"])


def ever_twice(claims: History, *, is_reserved: bool = False) -> set[tuple[str, str]]:
    """Return the devices, with their pools, that two claims have ever had at one time; `is_reserved`: both for pods."""
    held, twice = dict[str, set[tuple[str, str]]](), set[tuple[str, str]]()
    for change in claims.changes():
        claim = change["object"]
        uid, status = claim["metadata"]["uid"], claim.get("status", {})
        held.pop(uid, None)
        is_held = status.get("allocation") and (status.get("reservedFor") or not is_reserved)
        if is_held and change["type"] != "DELETED":
            devices = {(result["pool"], result["device"]) for result in status["allocation"]["devices"]["results"]}
            for others in held.values():
                twice |= devices & others
            held[uid] = devices
    return twice
