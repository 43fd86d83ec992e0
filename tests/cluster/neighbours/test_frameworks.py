"""A real API server takes the manifests for training frameworks, by the definitions of these programs."""

import json
from functools import partial

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.go_build import BinariesUnavailable
from tests.cluster.kubectl import kubectl
from tests.cluster.neighbours.schemas import SCHEMAS, definitions
from tests.cluster.polling import eventually
from tests.manifests.helm import MANIFESTS

FOLDER = MANIFESTS / "frameworks"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


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
    names = [definition["metadata"]["name"] for definition in objects]
    kubectl(cluster, "apply", "--server-side", "-f", "-", given=given)
    try:
        for definition in names:
            eventually(partial(is_established, cluster, definition))
        kubectl(cluster, "apply", "--dry-run=server", "--validate=strict", "-f", FOLDER / f"{name}.yaml")
    finally:
        for definition in names:
            cluster.admin.delete(f"{DEFINITIONS}/{definition}")


def is_established(cluster: ControlPlane, definition: str) -> bool:
    """Whether the API server takes objects of a definition."""
    status = cluster.admin.get(f"{DEFINITIONS}/{definition}").get("status") or {}
    established = {"type": "Established", "status": "True"}
    return any(established.items() <= condition.items() for condition in status.get("conditions") or ())
