"""A real API server takes the manifests for training frameworks, by the definitions of these programs."""

import json

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.go_build import BinariesUnavailable
from tests.cluster.kubectl import kubectl
from tests.cluster.neighbours.schemas import SCHEMAS, definitions
from tests.manifests.helm import MANIFESTS

FOLDER = MANIFESTS / "frameworks"


def test_every_manifest_has_a_schema() -> None:
    """And every schema a manifest."""
    assert {file.stem for file in FOLDER.glob("*.yaml")} == {*SCHEMAS}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_manifest_has_no_field_that_its_program_does_not_know(cluster: ControlPlane, name: str) -> None:
    """With strict field validation; what only webhooks check is not looked at."""
    try:
        objects = definitions(SCHEMAS[name])
    except BinariesUnavailable as reason:
        pytest.skip(str(reason))
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    kubectl(cluster, "apply", "--server-side", "-f", "-", given=given)
    try:
        names = [f"crd/{definition['metadata']['name']}" for definition in objects]
        kubectl(cluster, "wait", "--for=condition=Established", "--timeout=60s", *names)
        manifest = FOLDER / f"{name}.yaml"
        kubectl(cluster, "apply", "--dry-run=server", "--validate=strict", "-f", manifest)
    finally:
        kubectl(cluster, "delete", "-f", "-", given=given)
