"""What others check charts by: chart-testing, and kubeconform with the API of the oldest and the newest Kubernetes."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.binaries import NEWEST, kubernetes_version
from tests.manifests.checks import conform, lint_chart
from tests.manifests.helm import CHART, helm, render
from tests.manifests.test_chart_planner import GATE, PLANNER
from tests.manifests.test_chart_pods import ALL, sets

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("helm_is_here", "checks_are_here")]


def rejected(objects: str, folder: Path, pins: str) -> list[Any]:
    """Return name and fault of each object that the API does not have, or has otherwise; all others were checked."""
    said = conform(objects, folder, pins)
    assert said["summary"]["valid"] > 20
    return [(item["name"], item["msg"]) for item in said["resources"]]


@pytest.mark.parametrize("pins", ["1.30", NEWEST])
def test_kubernetes_knows_all_fields_of_the_chart(pins: str, tmp_path: Path) -> None:
    """With something for each value, and with `helm test`."""
    objects = helm("template", "gputopo", CHART, "-n", "x", "--kube-version", kubernetes_version(pins), *sets(ALL))
    assert rejected(objects, tmp_path, pins) == []
    [(name, fault)] = rejected(objects.replace("revisionHistoryLimit: 3", "revisionLimit: 3"), tmp_path, pins)
    assert name == "gputopo-agent" and "revisionLimit" in fault


def test_kubernetes_knows_all_fields_of_the_planner(tmp_path: Path) -> None:
    """Without a kube-scheduler, with the policy that adds the gate and the hook that opens it."""
    objects = render(*PLANNER, *GATE)
    assert "kind: MutatingAdmissionPolicy\n" in objects and "helm.sh/hook: post-delete\n" in objects
    assert rejected(objects, tmp_path, NEWEST) == []


def test_chart_testing_accepts_the_chart(tmp_path: Path) -> None:
    """Metadata by its schema, YAML by its style, and templates by `helm lint --strict`."""
    ended = lint_chart(CHART, tmp_path, "image.repository=gputopo")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("file", "before", "after", "fault"),
    [
        ("Chart.yaml", "home:", "homes:", "homes"),
        ("values.yaml", "\nscheduler:", "\n\n\n\nscheduler:", "too many blank lines"),
        ("templates/scheduler/pdb.yaml", "{{- end }}", "", "unexpected EOF"),
    ],
)
def test_chart_testing_refuses(file: str, before: str, after: str, fault: str, tmp_path: Path) -> None:
    """Each of the three."""
    chart = shutil.copytree(CHART, tmp_path / "gputopo")
    changed = (chart / file).read_text().replace(before, after, 1)
    (chart / file).write_text(changed)
    ended = lint_chart(chart, tmp_path, "image.repository=gputopo")
    assert ended.returncode == 1
    assert fault in ended.stdout + ended.stderr
