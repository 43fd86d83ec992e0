"""`kubectl gputopo claim`: a ResourceClaimTemplate of our DeviceClasses, and a pod that uses it."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Final, assert_never

import typer

from extender.features.dra.claim_spec import MAX_DEVICES, MIG_CLASS, OUR_CLASS, RefusedField
from extender.kit.yaml_text import write_yaml
from extender.kubectl.form import say
from extender.kubectl.reading import fail
from topology.annotations import keys
from topology.errors import RequestError
from topology.node.slices import as_asked
from topology.request.gpu_request import ContainerGpus, pod_request

IMAGE: Final = "nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04"


class ManifestForm(StrEnum):
    """How to print objects that a person applies."""

    YAML = "yaml"
    JSON = "json"
    NAME = "name"


def print_claim(
    gpus: Annotated[int, typer.Option(min=1, max=MAX_DEVICES, help="How many GPUs, or MIG devices.")],
    mig_profile: Annotated[str | None, typer.Option(help="Of MIG devices instead of GPUs, such as 1g.10gb.")] = None,
    name: Annotated[str, typer.Option(help="Of the template and the pod.")] = "gpus",
    required_affinity: Annotated[str | None, typer.Option(help="Such as nvlink, pcie-switch or numa-node.")] = None,
    min_bandwidth: Annotated[str | None, typer.Option(help="GB/s.")] = None,
    relax_after: Annotated[str | None, typer.Option(help="When both become preferences, such as 10m.")] = None,
    output: Annotated[ManifestForm, typer.Option("-o", "--output", help="How to print.")] = ManifestForm.YAML,
) -> None:
    """Print a ResourceClaimTemplate and a pod. Pipe them into `kubectl apply -f -`."""
    wants = {
        keys.REQUIRED_AFFINITY: required_affinity,
        keys.MIN_BANDWIDTH: min_bandwidth,
        keys.RELAX_AFTER: relax_after,
    }
    annotations = {key: value for key, value in wants.items() if value is not None}
    try:
        pod_request(annotations, [ContainerGpus("main", gpus, profile=as_asked(mig_profile or ""))])
        devices = _mig_devices(mig_profile) if mig_profile else {"deviceClassName": OUR_CLASS}
    except (RequestError, RefusedField) as error:
        fail(str(error))
    documents = (_template(name, {**devices, "count": gpus}, annotations), _pod(name))
    match output:
        case ManifestForm.YAML:
            lines = [line for document in documents for line in ("---", *write_yaml(document).splitlines())]
        case ManifestForm.JSON:
            lines = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}, indent=2).splitlines()
        case ManifestForm.NAME:
            lines = [f"resourceclaimtemplate.resource.k8s.io/{name}", f"pod/{name}"]
        case _:
            assert_never(output)
    for line in lines:
        say(line)


def _mig_devices(profile: str) -> dict[str, Any]:
    """Return the class and selector of MIG devices; raises `RefusedField` for what is no profile."""
    from extender.features.dra.profiles import profile_in, selector_of  # 5 ms, for this verb alone

    expression = selector_of(profile)
    profile_in("--mig-profile", [expression])
    return {"deviceClassName": MIG_CLASS, "selectors": [{"cel": {"expression": expression}}]}


def _template(name: str, devices: dict[str, Any], annotations: dict[str, str]) -> dict[str, Any]:
    """Return a template; its annotations are those of the claims that a controller makes of it."""
    request = {"name": "gpus", "exactly": devices}
    of_claims: dict[str, Any] = {"metadata": {"annotations": annotations}} if annotations else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {**of_claims, "spec": {"devices": {"requests": [request]}}},
    }


def _pod(name: str) -> dict[str, Any]:
    """Return a pod behind our gate: without it, kube-scheduler tries it again after every event of a claim."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["nvidia-smi", "-L"],
        "resources": {"claims": [{"name": "gpus"}]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{"name": keys.PLAN_GATE}],
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": name}],
            "containers": [container],
        },
    }
