"""The pod that `what-if` is about: from a manifest, or from a few words."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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


def pod_from(file: Path, namespace: str) -> dict[str, Any]:
    """Return the first pod of a manifest, or the one that its template makes; ends the program where there is none."""
    try:
        # A stream, since of a text PyYAML cannot say in which file it went wrong.
        with nullcontext(sys.stdin) if str(file) == "-" else file.open(encoding="utf-8") as text:
            documents = [found for found in yaml.safe_load_all(text) if found is not None]
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except Exception as error:  # PyYAML lets out whatever it meets in a number, a date or a deep list that is none
        fail(f"{file}: {' '.join(str(error).split())}")
    found = [(document, pod) for document in documents if (pod := _pod_in(document)) is not None]
    if not found:
        fail(f"{file}: neither a Pod nor anything that makes one, such as a Deployment or Job")
    document, pod = found[0]
    own = _mapping(document.get("metadata"))
    metadata = {"name": own.get("name") or "", **_mapping(pod.get("metadata"))}
    metadata["namespace"] = metadata.get("namespace") or own.get("namespace") or namespace
    spec = pod.get("spec")
    if isinstance(spec, dict):
        spec = {**spec, "schedulerName": spec.get("schedulerName") or _OF_THE_CLUSTER}
    return {**pod, "metadata": metadata, "spec": spec}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _pod_in(document: object) -> dict[str, Any] | None:
    """Return the pod that a document is, or makes: a Deployment, a Job, a CronJob."""
    if not isinstance(document, dict):
        return None
    if document.get("kind") == "Pod":
        return document
    spec = document.get("spec")
    inner = spec.get("template", spec.get("jobTemplate")) if isinstance(spec, dict) else None
    if not isinstance(inner, dict):
        return None
    nested = inner.get("spec")
    if isinstance(nested, dict) and "template" in nested:
        return _pod_in({"spec": nested})
    return inner


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
