"""The pod that `what-if` is about: from a manifest, or from a few words."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

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
GPU_RESOURCES: Final = (keys.GPU_RESOURCE, keys.MIG_PREFIX, keys.SHARE_RESOURCE)


def pod_from(file: Path, namespace: str) -> dict[str, Any]:
    """Return the first pod of a manifest that requests GPUs, else the first; ends the program where there is none.

    It may stand in any object with a pod template, such as a Deployment, a PyTorchJob, a RayJob or a List.
    """
    try:
        # A stream, since of a text PyYAML cannot say in which file it went wrong.
        with nullcontext(sys.stdin) if str(file) == "-" else file.open(encoding="utf-8") as text:
            documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except Exception as error:  # PyYAML lets out whatever it meets in a number, a date or a deep list that is none
        fail(f"{file}: {' '.join(str(error).split())}")
    pods = [(document, pod) for document in documents for pod in _pods_in(document)]
    if not pods:
        fail(f"{file}: neither a Pod nor anything with a pod template, such as a Deployment, a Job or a PyTorchJob")
    document, pod = next((pair for pair in pods if _requests_gpus(pair[1])), pods[0])
    own = _mapping(document.get("metadata"))
    metadata = {"name": own.get("name") or "", **_mapping(pod.get("metadata"))}
    metadata["namespace"] = metadata.get("namespace") or own.get("namespace") or namespace
    spec = pod.get("spec")
    if isinstance(spec, dict):
        spec = {**spec, "schedulerName": spec.get("schedulerName") or _OF_THE_CLUSTER}
    return {**pod, "metadata": metadata, "spec": spec}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _pods_in(value: object, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield all that has the form of a pod, in the order of the text."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        if value.get("kind") == "Pod" or isinstance(_mapping(value.get("spec")).get("containers"), list):
            yield value
            return
        value = [*value.values()]
    if isinstance(value, list):
        for item in value:
            yield from _pods_in(item, depth + 1)


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
