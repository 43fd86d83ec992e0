"""What kube-apiserver's strategies let a request change: defaults, status or spec, Bindings, grace periods."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.simulated.double.resources import NODES, PODS, ApiResource, Object
from benchmarks.simulated.double.status import StatusError, conflict, invalid

MAX_ANNOTATION_BYTES = 256 * 1024
"""Keys and values of one object together (apimachinery, `TotalAnnotationSizeLimitB`)."""


def admit_create(resource: ApiResource, new: Object) -> Object:
    """Return `new` with the defaults that others rely on; a pod's own idea of its status is dropped."""
    _check_annotations(resource, new)
    if resource is PODS:
        return {**new, "spec": _default_pod_spec(new.get("spec") or {}), "status": {"phase": "Pending"}}
    if resource is NODES:
        return {"spec": {}, "status": {}, **new}
    return new


def admit_update(resource: ApiResource, old: Object, new: Object, subresource: str) -> Object:
    """Return `new` with what this request may not touch put back: status, or for `/status` the spec."""
    _check_annotations(resource, new)
    if resource in (PODS, NODES):
        mine, theirs = ("status", "spec") if subresource == "status" else ("spec", "status")
        new = {**new, mine: new.get(mine) or {}, theirs: old[theirs]}
    if resource is PODS and old["spec"].get("nodeName"):
        _check_nomination(old, new)
    if resource is PODS and old["spec"] != new["spec"]:
        _check_gates(old, new)
        kept, now_kept = _fixed(old["spec"], new["spec"])
        if kept != now_kept:
            why = "spec: Forbidden: pod updates may only change images, gates and tolerations"
            raise invalid("Pod", old["metadata"]["name"], why)
        new = {**new, "metadata": new["metadata"] | {"generation": old["metadata"]["generation"] + 1}}
    return new


def check_identity(resource: ApiResource, old: Object, wanted: Object) -> None:
    """Refuse an update that was meant for another state (409) or another incarnation (422) of the object."""
    metadata = old["metadata"]
    if wanted.get("resourceVersion") and wanted["resourceVersion"] != metadata["resourceVersion"]:
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise conflict(resource.plural, metadata["name"], why)
    if wanted.get("uid") and wanted["uid"] != metadata["uid"]:
        why = f'metadata.uid: Invalid value: "{wanted["uid"]}": field is immutable'
        raise invalid(resource.kind, metadata["name"], why)


def check_preconditions(called: str, old: Object, wanted: Object) -> None:
    """Refuse with 409 when `wanted` names another `uid` or `resourceVersion`; `called` says what is refused."""
    metadata = old["metadata"]
    for key, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(key) and wanted[key] != metadata[key]:
            asked, found = f"{label} in precondition: {wanted[key]}", f"{label} in object meta: {metadata[key]}"
            raise conflict(called, metadata["name"], f"Precondition failed: {asked}, {found}")


def bind(pod: Object, binding: Object, now: str) -> Object:
    """Return `pod` on the node that `binding` names and with its annotations, or refuse with 409.

    As in the real server, nobody counts the annotations here: a Binding may exceed their limit.
    """
    target = binding.get("target") or {}
    if target.get("kind", "Node") not in ("", "Node") or not target.get("name"):
        raise StatusError(500, "", "target.name: Required value")
    check_preconditions("pods/binding", pod, binding["metadata"])
    if refusal := _binding_refusal(pod):
        raise conflict("pods/binding", pod["metadata"]["name"], refusal)
    annotations = {
        **(pod["metadata"].get("annotations") or {}),
        **(binding["metadata"].get("annotations") or {}),
    }
    conditions = [c for c in pod["status"].get("conditions") or [] if c["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    return {
        **pod,
        "metadata": {**pod["metadata"], **({"annotations": annotations} if annotations else {})},
        "spec": {**pod["spec"], "nodeName": target["name"]},
        "status": {**status, "conditions": [*conditions, scheduled]},
    }


def grace_period_seconds(pod: Object, requested: int | None) -> int | None:
    """Return the time that a delete leaves the kubelet, or `None` when one as short is under way already."""
    pending: int | None = pod["metadata"].get("deletionGracePeriodSeconds")
    if pending is not None:
        return requested if requested is not None and requested < pending else None
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Failed", "Succeeded"):
        return 0
    period: int = pod["spec"]["terminationGracePeriodSeconds"] if requested is None else requested
    return period if period >= 0 else 1


def _check_gates(old: Object, new: Object) -> None:
    """Refuse gates that were not there at the creation, as kube-apiserver does."""
    before, after = ({gate["name"] for gate in pod["spec"].get("schedulingGates") or []} for pod in (old, new))
    if after - before:
        why = "spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gate"
        raise invalid("Pod", old["metadata"]["name"], why)


def _check_nomination(old: Object, new: Object) -> None:
    """Refuse one of a bound pod, as kube-apiserver does from 1.35 on."""
    node = new["status"].get("nominatedNodeName")
    if node and node != old["status"].get("nominatedNodeName"):
        why = "status.nominatedNodeName: Forbidden: cannot be set on a pod that is bound"
        raise invalid("Pod", old["metadata"]["name"], why)


def _check_annotations(resource: ApiResource, item: Object) -> None:
    annotations = item["metadata"].get("annotations") or {}
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > MAX_ANNOTATION_BYTES:
        why = f"metadata.annotations: Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"
        raise invalid(resource.kind, item["metadata"]["name"], why)


def _binding_refusal(pod: Object) -> str | None:
    name, spec = pod["metadata"]["name"], pod["spec"]
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


def _fixed(old: Object, new: Object) -> tuple[Object, Object]:
    """Return the parts of a pod's old and new spec that have to be the same.

    Of a gated pod, labels to select nodes by may be added, and a node affinity where it had none (`_is_tighter`).
    """
    changeable = ["schedulingGates", "tolerations"]
    if old.get("schedulingGates") and _is_tighter(old, new):
        changeable += ["nodeSelector", "affinity"]
    return _kept(old, changeable), _kept(new, changeable)


def _is_tighter(old: Object, new: Object) -> bool:
    """Whether a gated pod's new spec lets it go to no node that the old one does not.

    The real server also takes further requirements in a node affinity that is there; nobody here writes any.
    """
    selected, now_selected = old.get("nodeSelector") or {}, new.get("nodeSelector") or {}
    node_affinity = (old.get("affinity") or {}).get("nodeAffinity")
    others, now_others = (
        {key: value for key, value in (spec.get("affinity") or {}).items() if key != "nodeAffinity"}
        for spec in (old, new)
    )
    is_same = node_affinity == (new.get("affinity") or {}).get("nodeAffinity")
    return selected.items() <= now_selected.items() and others == now_others and (not node_affinity or is_same)


def _kept(spec: Object, changeable: Sequence[str]) -> Object:
    kept = {key: value for key, value in spec.items() if key not in changeable}
    for key in ("initContainers", "containers"):
        if key in kept:
            kept[key] = [{k: v for k, v in container.items() if k != "image"} for container in kept[key]]
    return kept
