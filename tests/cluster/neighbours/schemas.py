"""The CustomResourceDefinitions of programs that create groups of pods, as their Go modules deliver them."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import Json
from tests.cluster.go_build import BinariesUnavailable


@dataclass(frozen=True, slots=True)
class Schema:
    """Where the definitions of a program are."""

    module: str
    """With its version; those of `go.mod` beside this file where that has the module."""
    files: tuple[str, ...]


_X_K8S = "config/components/crd/bases"
SCHEMAS = {
    "jobset": Schema("sigs.k8s.io/jobset@v0.10.1", (f"{_X_K8S}/jobset.x-k8s.io_jobsets.yaml",)),
    "leaderworkerset": Schema(
        "sigs.k8s.io/lws@v0.7.0", ("config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",)
    ),
    "kueue": Schema(
        "sigs.k8s.io/kueue@v0.14.0",
        tuple(f"{_X_K8S}/kueue.x-k8s.io_{kind}.yaml" for kind in ("clusterqueues", "localqueues", "resourceflavors")),
    ),
    "pytorchjob": Schema(
        "github.com/kubeflow/training-operator@v1.8.1", ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",)
    ),
    "mpijob": Schema("github.com/kubeflow/mpi-operator@v0.6.0", ("manifests/base/kubeflow.org_mpijobs.yaml",)),
    "trainjob": Schema(
        "github.com/kubeflow/trainer/v2@v2.0.0",
        tuple(f"manifests/base/crds/trainer.kubeflow.org_{kind}.yaml" for kind in ("trainingruntimes", "trainjobs")),
    ),
    "rayjob": Schema("github.com/ray-project/kuberay/ray-operator@v1.4.0", ("config/crd/bases/ray.io_rayjobs.yaml",)),
}
"""By the name of the manifest in `manifests/frameworks`."""


def definitions(schema: Schema) -> list[Json]:
    """Return the objects; raises `BinariesUnavailable` where the module cannot be had."""
    folder = _download(schema.module)
    objects: list[Json] = [item for file in schema.files for item in yaml.safe_load_all((folder / file).read_text())]
    for definition in objects:
        definition["spec"].pop("conversion", None)  # no webhook runs here
    return [_without_descriptions(definition) for definition in objects]


def _without_descriptions(value: Any) -> Any:
    """Return a third of the text, which an API server reads in a third of the time."""
    if isinstance(value, dict):
        items = value.items()
        return {
            key: _without_descriptions(item) for key, item in items if key != "description" or isinstance(item, dict)
        }
    return [_without_descriptions(item) for item in value] if isinstance(value, list) else value


def _download(module: str) -> Path:
    go = shutil.which("go")
    if go is None:
        raise BinariesUnavailable(f"no Go to download {module}")
    ended = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=Path.home(),
        env={**os.environ, "GOWORK": "off", "GOFLAGS": "", "GO111MODULE": "on"},
        capture_output=True,
        text=True,
        check=False,
    )
    answer: dict[str, str] = json.loads(ended.stdout or "{}")
    if "Dir" not in answer:
        raise BinariesUnavailable(f"{module}: {answer.get('Error') or ended.stderr.strip()}")
    return Path(answer["Dir"])
