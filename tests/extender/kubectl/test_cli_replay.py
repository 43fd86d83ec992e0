"""`kubectl gputopo replay -f` decides about the pods of a manifest after those that wait; nothing is created."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from extender.kubectl.hypothetical import MOST_PODS, pods_from
from tests.extender.kubectl.test_cli_what_if import MANIFESTS, NVLINK, manifest
from tests.extender.plugin import plugin
from topology.annotations import keys

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "main", "resources": {"limits": {keys.GPU_RESOURCE: 1}}}]}}


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({"replicas": 3, "template": TEMPLATE}, 3),
        ({"parallelism": 4, "completions": 2, "template": TEMPLATE}, 2),
        ({"completions": 2, "template": TEMPLATE}, 1),
        ({"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 3, "template": TEMPLATE}}}]}, 6),
        ({"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": TEMPLATE}}, 8),
        ({"leaderWorkerTemplate": {"size": 4, "leaderTemplate": TEMPLATE, "workerTemplate": TEMPLATE}}, 4),
        ({"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}}, 3),
        ({"replicas": 0, "template": TEMPLATE}, 0),
        ({"replicas": "many", "template": TEMPLATE}, 1),
    ],
)
def test_an_object_creates_as_many_pods_as_it_says(tmp_path: Path, spec: dict[str, Any], count: int) -> None:
    """By replicas and parallelism, each inside the other, and by the size of a LeaderWorkerSet's groups."""
    file = tmp_path / "object.yaml"
    file.write_text(json.dumps({"metadata": {"name": "train"}, "spec": spec}))
    names = [pod.metadata.name for pod in pods_from(file, "ml", 0.0)]
    assert names == [f"train-{number}" for number in range(count)]


@pytest.mark.parametrize("kind", sorted(MANIFESTS))
async def test_pods_of_a_manifest_are_decided_last(tmp_path: Path, kind: str) -> None:
    """Six GPUs are free, and an older pod takes four of them."""
    file = tmp_path / "pod.yaml"
    file.write_text(json.dumps(manifest(kind, 2)))
    result = await plugin(tmp_path, "replay", "-f", str(file), "-o", "json")
    assert result.exit_code == 1, result.output
    steps = {step["pod"]["name"]: step["pod"]["node"] for step in json.loads(result.stdout)["steps"]}
    created = [name for name in steps if name.startswith("train")]
    assert created == {"pod": ["train"], "pytorch": ["train-1", "train-2"]}.get(kind, [created[0]])
    assert [*steps][-len(created) :] == created
    assert [steps[name] for name in ("waits", *created)] == ["n1", "n1", None][: 1 + len(created)]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"kind": "Pod", "metadata": {"name": "waits"}, **TEMPLATE}, "pod default/waits exists already"),
        ({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}, "no pod asks for nvidia.com/gpu, "),
        ({"spec": {"replicas": MOST_PODS + 1, "template": TEMPLATE}}, "more than 1000 pods"),
        ({"kind": "ConfigMap"}, "neither a Pod nor anything with a pod template"),
    ],
)
async def test_what_cannot_be_created_is_refused(tmp_path: Path, document: dict[str, Any], reason: str) -> None:
    """Exit code 2, with the file and the reason."""
    file = tmp_path / "object.yaml"
    file.write_text(json.dumps(document))
    result = await plugin(tmp_path, "replay", "-f", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{file}: {reason}")


def test_a_pod_behind_a_gate_is_decided_as_if_it_were_open(tmp_path: Path) -> None:
    """Otherwise it would be missing in the answer."""
    gated = {"metadata": {"annotations": NVLINK}, "spec": {**TEMPLATE["spec"], "schedulingGates": [{"name": "g"}]}}
    file = tmp_path / "object.yaml"
    file.write_text(json.dumps({"metadata": {"name": "train"}, "spec": {"template": gated}}))
    assert [pod.spec.scheduling_gates for pod in pods_from(file, "ml", 0.0)] == [None]
