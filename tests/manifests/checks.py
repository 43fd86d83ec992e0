"""The chart-testing and kubeconform that `checks/go.mod` pins: others' word on charts and on objects."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.cluster.binaries import MODULE as KUBERNETES
from tests.cluster.binaries import NEWEST
from tests.cluster.go_build import BinariesUnavailable, GoBuild
from tests.manifests.helm import executable

CHECKS: Final = GoBuild(
    Path(__file__).parent / "checks",
    "checks",
    ("github.com/helm/chart-testing/v3/ct", "github.com/yannh/kubeconform/cmd/kubeconform"),
    ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"),
    "chart-testing and kubeconform (once, under a minute)",
)
NOT_OF_KUBERNETES: Final = ("PodMonitor", "PrometheusRule", "SecurityContextConstraints")
_REFERENCE: Final = "#/definitions/"
_SEVERAL_TYPES: Final = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": ["integer", "string"],
    "io.k8s.apimachinery.pkg.api.resource.Quantity": ["number", "string"],
}
"""Types that Kubernetes calls strings, and reads from numbers as well."""


def lint_chart(chart: Path, folder: Path, *values: str) -> subprocess.CompletedProcess[str]:
    """Run chart-testing with its own settings, but for what needs a remote branch or accounts at GitHub.

    Args:
        chart: the chart's folder.
        folder: an empty one.
        values: what `--set` takes.

    """
    programs = CHECKS.find_or_build(print)
    settings = _module(CHECKS.module, "github.com/helm/chart-testing/v3") / "etc"
    (folder / "helm").symlink_to(executable())
    command: list[str | Path] = [
        programs / "ct", "lint", f"--charts={chart}",
        f"--chart-yaml-schema={settings / 'chart_schema.yaml'}", f"--lint-conf={settings / 'lintconf.yaml'}",
        "--check-version-increment=false", "--validate-maintainers=false",
        "--helm-lint-extra-args", f"--strict --namespace=x {' '.join(f'--set={value}' for value in values)}",
    ]  # fmt: skip
    path = f"{folder}:{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    return subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)


def conform(objects: str, folder: Path, pins: str = NEWEST) -> dict[str, Any]:
    """Return what kubeconform says of the objects, by the API of the Kubernetes that `pins` pins.

    Args:
        objects: YAML documents.
        folder: for the schemas.
        pins: as `kubernetes_version` takes it.

    """
    for name, schema in _schemas(pins):
        (folder / f"{name}.json").write_text(json.dumps(schema), encoding="utf-8")
    command: list[str | Path] = [
        CHECKS.find_or_build(print) / "kubeconform", "-strict", "-summary", "-output=json",
        f"-schema-location={folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
        f"-skip={','.join(NOT_OF_KUBERNETES)}",
    ]  # fmt: skip
    ended = subprocess.run(command, input=objects, capture_output=True, text=True, check=False)
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


def _schemas(pins: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield kubeconform's file name of every kind, and its schema: what Kubernetes publishes, and nothing else admitted."""
    file = _module(KUBERNETES, "k8s.io/kubernetes", pins) / "api/openapi-spec/swagger.json"
    definitions: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["definitions"]
    for name, definition in definitions.items():
        if name in _SEVERAL_TYPES:
            definition["type"] = _SEVERAL_TYPES[name]
        elif "properties" in definition:
            definition.setdefault("additionalProperties", False)
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            suffix = "-".join(part for part in (kind["group"].split(".")[0], kind["version"]) if part)
            needed = {below: definitions[below] for below in _reachable(name, definitions)}
            yield f"{kind['kind'].lower()}-{suffix}", {"$ref": f"{_REFERENCE}{name}", "definitions": needed}


def _reachable(name: str, definitions: dict[str, dict[str, Any]]) -> set[str]:
    """Return the names of a definition and of all that it is made of."""
    reached, waiting = {name}, [name]
    while waiting:
        text = json.dumps(definitions[waiting.pop()])
        new = {part.split('"')[0] for part in text.split(f'"{_REFERENCE}')[1:]} - reached
        reached |= new
        waiting += new
    return reached


def _module(within: Path, name: str, pins: str = NEWEST) -> Path:
    """Return the folder with the source of a module that `within` pins; Go gets it where it is not there."""
    flags = "" if pins == NEWEST else f"-modfile={pins}.mod"
    answer = subprocess.run(
        ["go", "mod", "download", "-json", name],
        cwd=within,
        env=os.environ | {"GOFLAGS": flags, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise BinariesUnavailable(f"go could not get {name}: {answer.stderr.strip() or answer.stdout.strip()}")
    return Path(json.loads(answer.stdout)["Dir"])
