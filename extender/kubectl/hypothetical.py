"""Pods that `what-if` and `replay` are about: from a manifest, or from a few words."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from extender.cluster.objects.kinds import Pod
from extender.kubectl.reading import fail
from extender.kubernetes.documents import BrokenStream, decoder
from topology.annotations import keys

_decode = decoder(Pod)
_OF_THE_CLUSTER: Final = "default-scheduler"
"""The scheduler's name that the API server writes into a pod without one."""
MAX_DEPTH: Final = 20
"""Of what is looked through for pods; a JobSet in a List has eight."""
MOST_PODS: Final = 1000
"""That a manifest may create."""
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_GROUP_LABELS: Final[Mapping[str, str]] = {
    "Job": _JOB_NAME,
    **dict.fromkeys(("JobSet", "TrainJob", "TrainingRuntime"), "jobset.sigs.k8s.io/jobset-name"),
    **dict.fromkeys(("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob"), "training.kubeflow.org/job-name"),
    **dict.fromkeys(("RayCluster", "RayJob"), "ray.io/cluster"),
}
"""Kind of an object → the label by which its controller makes one group of its pods."""
GPU_RESOURCES: Final = (keys.GPU_RESOURCE, keys.MIG_PREFIX, keys.SHARE_RESOURCE)


def pod_from(file: Path, namespace: str) -> dict[str, Any]:
    """Return the first pod of a manifest that requests GPUs, else the first; ends the program where there is none.

    It may stand in any object with a pod template, such as a Deployment, a PyTorchJob, a RayJob or a List.
    """
    pods = _pods_of(file)
    document, pod, _ = next((pod for pod in pods if _requests_gpus(pod[1])), pods[0])
    return _complete(document, pod, namespace)


def pods_from(file: Path, namespace: str, wall: float) -> list[Pod]:
    """Return all pods that the objects of a manifest would create, their gates open; ends the program where there is none.

    Args:
        file: The manifest.
        namespace: Of objects that name none.
        wall: When they are created, in seconds since the epoch.

    """
    created = datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    templates = _pods_of(file)
    if sum(count for _, _, count in templates) > MOST_PODS:
        fail(f"{file}: more than {MOST_PODS} pods")
    pods, of_name = list[Pod](), Counter[tuple[str, str]]()
    for document, template, count in templates:
        whole = _complete(document, template, namespace)
        name = whole["metadata"]["namespace"], whole["metadata"]["name"]
        for _ in range(count):
            metadata = {
                **whole["metadata"],
                "uid": f"manifest-{len(pods)}",
                "resourceVersion": "1",
                "creationTimestamp": created,
            }
            if template.get("kind") != "Pod":
                metadata["name"] = f"{name[1]}-{of_name[name]}"
            of_name[name] += 1
            spec = {**_mapping(whole["spec"]), "schedulingGates": None}
            pods.append(read(_encoded(file, {**whole, "metadata": metadata, "spec": spec, "status": {}})))
    return pods


def _encoded(file: Path, pod: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(pod)
    except TypeError as error:
        fail(f"{file}: {error}")


def _pods_of(file: Path) -> list[tuple[dict[str, Any], dict[str, Any], int]]:
    """Return each pod of a manifest with its object, and how many of it; ends the program where there is none."""
    try:
        # A stream, since of a text PyYAML cannot say in which file it went wrong.
        with nullcontext(sys.stdin) if str(file) == "-" else file.open(encoding="utf-8") as text:
            documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except Exception as error:  # PyYAML lets out whatever it meets in a number, a date or a deep list that is none
        fail(f"{file}: {' '.join(str(error).split())}")
    pods = [(item, *pod) for document in documents for item in _objects_in(document) for pod in _pods_in(item)]
    if not pods:
        fail(f"{file}: neither a Pod nor anything with a pod template, such as a Deployment, a Job or a PyTorchJob")
    return pods


def _objects_in(document: object) -> list[Any]:
    """Return the objects of a List, or the document itself."""
    items = _mapping(document).get("items")
    return items if isinstance(items, list) else [document]


def _complete(document: dict[str, Any], pod: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return a pod of a template with what the API server and its controller add; its object may name it."""
    own = _mapping(document.get("metadata"))
    metadata = {"name": own.get("name") or "", **_mapping(pod.get("metadata"))}
    metadata["namespace"] = metadata.get("namespace") or own.get("namespace") or namespace
    metadata["labels"] = {**_group_labels(document, metadata["name"]), **_mapping(metadata.get("labels"))}
    spec = pod.get("spec")
    if isinstance(spec, dict):
        spec = {**spec, "schedulerName": spec.get("schedulerName") or _OF_THE_CLUSTER}
    return {**pod, "metadata": metadata, "spec": spec}


def _group_labels(document: dict[str, Any], name: str) -> dict[str, str]:
    """Return the labels that make the pods of an object a group; those of a Job without indexes are none."""
    label = _GROUP_LABELS.get(str(document.get("kind")))
    if label is None:
        return {}
    if label != _JOB_NAME:
        return {label: name}
    is_indexed = _mapping(document.get("spec")).get("completionMode") == "Indexed"
    return {label: name, "batch.kubernetes.io/job-completion-index": "0"} if is_indexed else {}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _pods_in(value: object, depth: int = 0, count: int = 1) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield all that has the form of a pod, in the order of the text, and how many of it the object creates."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _pods_in(item, depth + 1, count)
    if not isinstance(value, dict):
        return
    if value.get("kind") == "Pod" or isinstance(_mapping(value.get("spec")).get("containers"), list):
        yield value, count
        return
    count *= _replicas(value)
    for key, item in value.items():
        # The size of a LeaderWorkerSet's group includes the leader.
        of_a_group = _whole(value.get("size"), 1) - ("leaderTemplate" in value) if key == "workerTemplate" else 1
        yield from _pods_in(item, depth + 1, count * of_a_group)


def _replicas(value: dict[str, Any]) -> int:
    """Return how many times an object creates what stands in it, or at once in the case of a Job."""
    parallelism = _whole(value.get("parallelism"), 1)
    return _whole(value.get("replicas"), 1) * min(parallelism, _whole(value.get("completions"), parallelism))


def _whole(value: object, default: int) -> int:
    return min(value, MOST_PODS + 1) if isinstance(value, int) and value >= 0 else default


def _requests_gpus(pod: dict[str, Any]) -> bool:
    amounts = [
        amount
        for container in _mapping(pod.get("spec")).get("containers") or ()
        for amounts in _mapping(_mapping(container).get("resources")).values()
        for amount in _mapping(amounts)
    ]
    return any(amount.startswith(GPU_RESOURCES) for amount in amounts if isinstance(amount, str))


def pod_of(resource: str, amount: int, wants: Mapping[str, str | None], namespace: str) -> dict[str, Any]:
    """Return a pod of one container that asks for so much of a resource, with the annotations that have a value."""
    annotations = {keys.USER_PREFIX + name: value for name, value in wants.items() if value is not None}
    container = {"name": "main", "resources": {"limits": {resource: str(amount)}}}
    metadata = {"name": "what-if", "namespace": namespace, "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def read(pod: bytes) -> Pod:
    """Return the pod as the extender reads it; ends the program where it cannot be read."""
    try:
        return _decode(pod)
    except BrokenStream as error:
        fail(f"that is not a pod: {error}")
