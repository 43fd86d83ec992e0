"""A placeholder as a Kubernetes object: a Job with one pod that the extender never places.

Where kube-scheduler asks no extender it may bind the pod, which the rounds delete then.

It is a Job and not a bare pod, because Kubernetes ends and removes a Job by itself. `activeDeadlineSeconds` counts for
pods that wait, too, and `ttlSecondsAfterFinished` removes it. So placeholders of extenders that died do not go on buying
nodes. Its name follows from the UID of the pod that waits, so that several extenders cannot create two.

For a pod with ResourceClaims it has a claim, too, from a template that the Job owns. Our DeviceClass matches no device, so no
autoscaler would add a node for it. The claim requests the same devices of NVIDIA's class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from extender.cluster.objects.stands_for import StandsFor
from extender.features.autoscaling.need import Need
from extender.features.autoscaling.settings import AutoscalingSettings
from extender.kubernetes.rest import FIELD_MANAGER, Request
from topology.annotations import keys

Json = dict[str, Any]

LABELS: Final = {"app.kubernetes.io/name": "gputopo-placeholder", "app.kubernetes.io/managed-by": FIELD_MANAGER}
_CLAIM: Final = "gpus"
_COPIED: Final = ("schedulerName", "tolerations", "nodeSelector", "runtimeClassName", "resources")
"""Of the pod's spec as it is. What speaks of other pods, of volumes and of claims is left out."""


def creation(pod: Mapping[str, Any], need: Need, label: str, resource: str, settings: AutoscalingSettings) -> Request:
    """Return the request that creates the placeholder of a pod, which is given as the API server shows it."""
    path = f"{_jobs(settings.namespace)}?fieldManager={FIELD_MANAGER}"
    return Request("POST", path, msgspec.json.encode(job(pod, need, label, resource, settings)))


def deletion(namespace: str, uid: str) -> Request:
    """Return the request that removes the placeholder of a pod, its own pod included."""
    return Request("DELETE", f"{_jobs(namespace)}/{quote(_job_name(uid), safe='')}?propagationPolicy=Background")


def job(pod: Mapping[str, Any], need: Need, label: str, resource: str, settings: AutoscalingSettings) -> Json:
    """Return the Job that stands for a pod; `label` says which group a node belongs to, and `resource` counts GPUs."""
    metadata, spec = pod["metadata"], pod["spec"]
    by_claim = need.request.by_claim
    stands_for = StandsFor(metadata["namespace"], metadata["name"], metadata["uid"], need.gpus if by_claim else 0)
    annotations = {keys.PLACEHOLDER_FOR: str(stands_for)}
    containers = [_container(container, resource, settings.image) for container in spec["containers"]]
    gpus = containers[0]["resources"]
    if by_claim:
        gpus["claims"] = [{"name": _CLAIM}]
    else:
        for amounts in gpus.values():
            amounts[resource] = str(need.gpus)
    template = {
        **{name: spec[name] for name in _COPIED if name in spec},
        "affinity": {"nodeAffinity": _within(spec.get("affinity", {}).get("nodeAffinity", {}), label, need.groups)},
        "containers": containers,
        "initContainers": [
            _container(container, resource, settings.image) for container in spec.get("initContainers", [])
        ],
        "priorityClassName": settings.priority_class,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    if by_claim:
        template["resourceClaims"] = [{"name": _CLAIM, "resourceClaimTemplateName": _job_name(stands_for.uid)}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "namespace": settings.namespace,
            "name": _job_name(stands_for.uid),
            "labels": LABELS,
            "annotations": annotations,
        },
        "spec": {
            "activeDeadlineSeconds": round(settings.life),
            "ttlSecondsAfterFinished": 0,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": LABELS, "annotations": annotations}, "spec": template},
        },
    }


def claim_template_creation(uid: str, job_uid: str, need: Need, settings: AutoscalingSettings) -> Request:
    """Return the request that creates what the placeholder's claim is made from; Kubernetes removes it with the Job."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{quote(settings.namespace, safe='')}/resourceclaimtemplates"
    return Request(
        "POST",
        f"{path}?fieldManager={FIELD_MANAGER}",
        msgspec.json.encode(_claim_template(uid, job_uid, need, settings)),
    )


def _claim_template(uid: str, job_uid: str, need: Need, settings: AutoscalingSettings) -> Json:
    """Return a template for devices that suit the pod, of a class that autoscalers and kube-scheduler know."""
    exactly = {
        "deviceClassName": settings.device_class,
        "allocationMode": "ExactCount",
        "count": need.gpus,
        "selectors": [{"cel": {"expression": expression}} for expression in need.devices.selectors],
    }
    constraints = [{"matchAttribute": attribute} for attribute in need.devices.match_attributes]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": _job_name(uid), "uid": job_uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "namespace": settings.namespace,
            "name": _job_name(uid),
            "labels": LABELS,
            "ownerReferences": [owner],
        },
        "spec": {"spec": {"devices": {"requests": [{"name": _CLAIM, "exactly": exactly}], "constraints": constraints}}},
    }


def _job_name(uid: str) -> str:
    """Return the name of the placeholder of a pod.

    >>> _job_name("8f6b0c1e")
    'gputopo-8f6b0c1e'
    """
    return f"gputopo-{uid}"


def _jobs(namespace: str) -> str:
    return f"/apis/batch/v1/namespaces/{quote(namespace, safe='')}/jobs"


def _container(container: Json, resource: str, image: str) -> Json:
    """Keep what it takes of a node beside GPUs."""
    resources = container.get("resources", {})
    return {
        "name": container["name"],
        "image": image,
        **({"restartPolicy": container["restartPolicy"]} if "restartPolicy" in container else {}),
        "resources": {
            kind: {name: amount for name, amount in resources.get(kind, {}).items() if name != resource}
            for kind in ("requests", "limits")
        },
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _within(affinity: Json, label: str, groups: tuple[str, ...]) -> Json:
    """Narrow an affinity to nodes of these groups. Its terms are alternatives, so each of them is narrowed."""
    only = {"key": label, "operator": "In", "values": list(groups)}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = affinity.get(required, {}).get("nodeSelectorTerms") or [{}]
    narrowed = [{**term, "matchExpressions": [*term.get("matchExpressions", []), only]} for term in terms]
    return {**affinity, required: {"nodeSelectorTerms": narrowed}}
