"""The objects of the rendered copy, found by kind and name."""

from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from tests.manifests.rendered import FOLDER

Json = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The same documents ten times as fast, where PyYAML has it."""


@lru_cache(128)
def _documents(text: str) -> tuple[Json, ...]:
    return tuple(yaml.load_all(text, Loader=_LOADER))


def all_objects(folder: Path = FOLDER) -> Iterator[Json]:
    """Yield every object that `kubectl apply -k` would send."""
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        yield from deepcopy(_documents((folder / name).read_text()))


def of_kind(*kinds: str, folder: Path = FOLDER) -> list[Json]:
    """Return all objects of these kinds."""
    return [found for found in all_objects(folder) if found["kind"] in kinds]


def named(kind: str, name: str, folder: Path = FOLDER) -> Json:
    """Return the one object of that kind and name."""
    (found,) = (found for found in of_kind(kind, folder=folder) if found["metadata"]["name"] == name)
    return found


def file_of(config_map: str, key: str, folder: Path = FOLDER) -> str:
    """Return the text of one file in a ConfigMap."""
    text: str = named("ConfigMap", config_map, folder)["data"][key]
    return text


def pod_specs() -> list[Json]:
    """Return the pod specs of all workloads."""
    return [workload["spec"]["template"]["spec"] for workload in of_kind("DaemonSet", "Deployment")]


def containers(spec: Json) -> list[Json]:
    """Return all containers of a pod spec, sidecars too."""
    return [*spec.get("initContainers", ()), *spec["containers"]]
