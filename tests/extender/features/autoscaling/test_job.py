"""A placeholder as an object: what it copies of its pod, and what it must never have."""

from __future__ import annotations

import json
from typing import Any

from extender.features.autoscaling.job import creation, deletion, job
from extender.features.autoscaling.need import Need
from extender.features.autoscaling.settings import AutoscalingSettings
from tests.extender.scattered import LABEL
from topology.annotations import keys
from topology.request.gpu_request import GpuRequest

NEED = Need(5, ("a", "b"), GpuRequest.plain(4), 2)
ONLY = {"key": LABEL, "operator": "In", "values": ["a", "b"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = keys.GPU_RESOURCE


def waiting(**spec: Any) -> dict[str, Any]:
    """Return a pod as the API server shows it."""
    resources = {"requests": {"cpu": "8", "memory": "64Gi", GPU: "4"}, "limits": {GPU: "4", "rdma/hca": "2"}}
    containers = [{"name": "main", "image": "secret/image", "env": [{"name": "TOKEN"}], "resources": resources}]
    metadata = {"namespace": "ml", "name": "ring", "uid": "u1", "labels": {"app": "training"}}
    return {"metadata": metadata, "spec": {"schedulerName": "gputopo", "containers": containers, **spec}}


def pod_of(**spec: Any) -> dict[str, Any]:
    """Return the spec of the placeholder's pod."""
    made: dict[str, Any] = job(waiting(**spec), NEED, LABEL, GPU, AutoscalingSettings())["spec"]["template"]["spec"]
    return made


def test_it_asks_for_the_gpus_of_the_need_and_all_else_that_its_pod_asks_for() -> None:
    """CPU, memory and other devices decide which machines will do."""
    [container] = pod_of()["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "8", "memory": "64Gi", GPU: "5"},
        "limits": {GPU: "5", "rdma/hca": "2"},
    }


def test_gpus_of_further_containers_are_not_counted_again() -> None:
    """The need is the whole pod's."""
    again = {"name": "again", "resources": {"limits": {GPU: "4", "cpu": "1"}}}
    made = pod_of(initContainers=[{**again, "restartPolicy": "Always"}])
    [sidecar] = made["initContainers"]
    assert (sidecar["resources"]["limits"], sidecar["restartPolicy"]) == ({"cpu": "1"}, "Always")


def test_it_goes_where_its_pod_may_go_and_to_groups_that_help() -> None:
    """Terms of an affinity are alternatives, so each of them is narrowed."""
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "xy"]
    tolerations = [{"key": "gpus", "operator": "Exists"}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": zones}}, "podAffinity": {"never": "copied"}}
    made = pod_of(nodeSelector={"pool": "p"}, tolerations=tolerations, affinity=affinity)
    assert (made["nodeSelector"], made["tolerations"]) == ({"pool": "p"}, tolerations)
    terms = [{"matchExpressions": [*zone["matchExpressions"], ONLY]} for zone in zones]
    assert made["affinity"] == {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def test_a_pod_without_affinity_is_narrowed_too() -> None:
    """Else a machine without such links would be bought, if it is cheaper."""
    assert pod_of()["affinity"]["nodeAffinity"] == {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ONLY]}]}}


def test_nothing_of_what_its_pod_runs_is_copied() -> None:
    """It never runs; and whoever may read placeholders may not read the pods."""
    text = json.dumps(
        job(waiting(volumes=[{"secret": "s"}], serviceAccountName="boss"), NEED, LABEL, GPU, AutoscalingSettings())
    )
    assert not any(word in text for word in ("secret", "TOKEN", "boss", "training"))


def test_kubernetes_ends_and_removes_it() -> None:
    """Whoever is alive."""
    made = job(waiting(), NEED, LABEL, GPU, AutoscalingSettings(life="5m"))
    spec = made["spec"]
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"], spec["backoffLimit"]) == (300, 0, 0)


def test_all_extenders_give_it_the_same_name() -> None:
    """So that the API server lets only one of them create it, and each can remove it."""
    request = creation(waiting(), NEED, LABEL, GPU, AutoscalingSettings(namespace="ns"))
    assert request.path == "/apis/batch/v1/namespaces/ns/jobs?fieldManager=gputopo-extender"
    assert json.loads(request.body or b"")["metadata"]["name"] == "gputopo-u1"
    gone = deletion("ns", "u1")
    assert (gone.method, gone.path) == (
        "DELETE",
        "/apis/batch/v1/namespaces/ns/jobs/gputopo-u1?propagationPolicy=Background",
    )
