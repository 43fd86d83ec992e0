"""What kube-apiserver's strategies let a request change: defaults, status or spec, Bindings, grace periods."""

from __future__ import annotations

from benchmarks.double.resources import NODES, PODS, Object, Resource
from benchmarks.double.status import conflict, invalid

MAX_ANNOTATION_BYTES = 256 * 1024
"""Keys and values of one object together (apimachinery, `TotalAnnotationSizeLimitB`)."""


def admit_create(resource: Resource, new: Object) -> Object:
    """Return `new` with the defaults that others rely on; a pod's own idea of its status is dropped."""
    check(resource, new)
    if resource is PODS:
        return {**new, "spec": _default_pod_spec(new.get("spec") or {}), "status": {"phase": "Pending"}}
    return new


def admit_update(resource: Resource, old: Object, new: Object, subresource: str) -> Object:
    """Return `new` with what this request may not touch put back: status, or for `/status` the spec."""
    if resource in (PODS, NODES):
        mine, theirs = ("status", "spec") if subresource == "status" else ("spec", "status")
        new = {**new, mine: new.get(mine) or {}, theirs: old.get(theirs) or {}}
    if resource is PODS and _fixed(old["spec"]) != _fixed(new["spec"]):
        raise invalid(
            "Pod",
            old["metadata"]["name"],
            "spec: Forbidden: pod updates may not change fields other than ...",
        )
    check(resource, new)
    return new


def check(resource: Resource, item: Object) -> None:
    """Refuse annotations that no API server would store."""
    annotations = item["metadata"].get("annotations") or {}
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > MAX_ANNOTATION_BYTES:
        why = f"metadata.annotations: Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"
        raise invalid(resource.kind, item["metadata"]["name"], why)


def bind(pod: Object, binding: Object, now: str) -> Object:
    """Return `pod` on the node that `binding` names and with its annotations, or refuse with 409."""
    metadata, target = binding["metadata"], binding.get("target") or {}
    name = pod["metadata"]["name"]
    if target.get("kind", "Node") not in ("", "Node") or not target.get("name"):
        raise invalid("Binding", name, "target.name: Required value")
    if refusal := _binding_refusal(pod, metadata):
        raise conflict("pods/binding", name, refusal)
    annotations = {**(pod["metadata"].get("annotations") or {}), **(metadata.get("annotations") or {})}
    conditions = [c for c in pod["status"].get("conditions") or [] if c["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    return {
        **pod,
        "metadata": {**pod["metadata"], **({"annotations": annotations} if annotations else {})},
        "spec": {**pod["spec"], "nodeName": target["name"]},
        "status": {**status, "conditions": [*conditions, scheduled]},
    }


def precondition_refusal(metadata: Object, wanted: Object) -> str | None:
    """Say why an object does not meet `wanted` (`uid`, `resourceVersion`; empty asks for nothing)."""
    for key, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(key) and wanted[key] != metadata[key]:
            found = f"{label} in object meta: {metadata[key]}"
            return f"Precondition failed: {label} in precondition: {wanted[key]}, {found}"
    return None


def grace_period_seconds(resource: Resource, item: Object, requested: int | None) -> int:
    """Return how long a delete must wait for the kubelet; 0 removes the object at once."""
    if resource is not PODS:
        return 0
    if not item["spec"].get("nodeName") or item["status"].get("phase") in ("Failed", "Succeeded"):
        return 0
    period: int = item["spec"]["terminationGracePeriodSeconds"] if requested is None else requested
    return period if period >= 0 else 1


def _binding_refusal(pod: Object, wanted: Object) -> str | None:
    name, spec = pod["metadata"]["name"], pod["spec"]
    if refusal := precondition_refusal(pod["metadata"], wanted):
        return refusal
    if "deletionTimestamp" in pod["metadata"]:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return None


def _default_pod_spec(spec: Object) -> Object:
    defaults = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
    }
    containers = {
        key: [_default_requests(container) for container in spec[key]]
        for key in ("initContainers", "containers")
        if spec.get(key)
    }
    return {**defaults, **spec, **containers}


def _default_requests(container: Object) -> Object:
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, **({"requests": requests} if requests else {})}}


def _fixed(spec: Object) -> Object:
    """Return the part of a pod's spec that only a Binding may change."""
    kept = {key: value for key, value in spec.items() if key not in ("schedulingGates", "tolerations")}
    for key in ("initContainers", "containers"):
        if key in kept:
            kept[key] = [{k: v for k, v in container.items() if k != "image"} for container in kept[key]]
    return kept
