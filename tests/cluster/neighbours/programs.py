"""The controllers that make groups of pods, built once per user, with their own manifests.

One Go module pins Kueue, JobSet, LeaderWorkerSet and the operators of training frameworks: they share most packages.

By hand: `python -m tests.cluster.neighbours.programs` builds them if need be and prints the folder.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.go_build import BinariesUnavailable, GoBuild

HERE = Path(__file__).parent
KUEUE, JOBSET, LWS, FRAMEWORKS = "kueue", "jobset", "lws", "frameworks"
_PACKAGES = {KUEUE: "sigs.k8s.io/kueue/cmd/kueue", JOBSET: "sigs.k8s.io/jobset", LWS: "sigs.k8s.io/lws/cmd"}
_OF_FRAMEWORKS = {
    "github.com/kubeflow/training-operator": (
        "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
        "manifests/base/webhook/manifests.yaml",
    ),
    "github.com/kubeflow/trainer/v2": (
        "manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
        "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
        "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
        "manifests/base/webhook/manifests.yaml",
    ),
    "github.com/ray-project/kuberay/ray-operator": (
        "config/crd/bases/ray.io_rayclusters.yaml",
        "config/crd/bases/ray.io_rayjobs.yaml",
    ),
    "github.com/kubeflow/mpi-operator": ("manifests/base/kubeflow.org_mpijobs.yaml",),
}
"""Their definitions and webhooks, by module."""

CONTROLLERS = GoBuild(
    HERE,
    "neighbours",
    (*_PACKAGES.values(), f"./{FRAMEWORKS}"),
    ("-p", "2", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"),
    "Kueue, JobSet, LeaderWorkerSet and training operators (once, about four minutes)",
    finished_by=(Path(__file__),),
)


def find_or_build(announce: Callable[[str], None] = print) -> Path:
    """Return the folder with a program and a folder `<program>-config` for each; raises `BinariesUnavailable`."""
    return CONTROLLERS.find_or_build(announce, _complete)


def _complete(folder: Path) -> None:
    """Call LeaderWorkerSet's program by its name, and lay the manifests of the same versions beside the programs."""
    (folder / "cmd").rename(folder / LWS)
    for name in _PACKAGES:
        shutil.copytree(
            _source(f"sigs.k8s.io/{name}") / "config", folder / f"{name}-config", copy_function=shutil.copyfile
        )
        for path in (folder / f"{name}-config", *(folder / f"{name}-config").rglob("*/")):
            path.chmod(0o755)  # the module cache is read-only, and so would be what is copied from it
    objects = [item for module, files in _OF_FRAMEWORKS.items() for file in files for item in _read(module, file)]
    for item in objects:
        if versions := item.get("spec", {}).get("versions"):
            item["spec"]["versions"] = [version for version in versions if version["storage"]]
    (folder / f"{FRAMEWORKS}.json").write_text(json.dumps(_without_descriptions(objects)))


def _read(module: str, file: str) -> list[Any]:
    return [item for item in yaml.safe_load_all((_source(module) / file).read_text()) if item]


def _without_descriptions(value: Any) -> Any:
    """Return a third of the text, which an API server reads in a third of the time."""
    if isinstance(value, dict):
        items = value.items()
        return {
            key: _without_descriptions(item) for key, item in items if key != "description" or isinstance(item, dict)
        }
    return [_without_descriptions(item) for item in value] if isinstance(value, list) else value


@cache
def _source(module: str) -> Path:
    listed = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", module], cwd=HERE, capture_output=True, text=True, check=True
    )
    return Path(listed.stdout.strip())


if __name__ == "__main__":
    try:
        print(find_or_build(announce=lambda text: print(text, file=sys.stderr)))
    except BinariesUnavailable as error:
        sys.exit(str(error))
