"""SEC7: without the admission policies the extender says so, and answers nobody if it was told to insist on them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.simulated.fleet import SimulatedNode, node_object
from tests.cluster.admission import put_in_force, unbind_policies
from tests.cluster.extender_process import ExtenderProcess
from tests.cluster.installation import Installation
from tests.cluster.objects import NODES
from tests.cluster.polling import eventually
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE

CALL = json.dumps(
    {"Pod": {"metadata": {"name": "p", "namespace": "default", "uid": "u"}}, "NodeNames": ["h100"]}
).encode()


@pytest.fixture
def bare(installation: Installation) -> Iterator[Installation]:
    """Lend the installed control plane, with a node and without what binds the policies."""
    plane = installation.plane
    plane.admin.post(NODES, node_object(SimulatedNode("h100", "hgx-h100")))
    unbind_policies(plane)
    try:
        yield installation
    finally:
        put_in_force(plane)
        sweep(plane.admin, keep=[NAMESPACE])


@contextmanager
def running(extender: ExtenderProcess) -> Iterator[ExtenderProcess]:
    extender.start()
    try:
        yield extender
    finally:
        extender.stop()


def test_sec7_extender_warns_and_counts(bare: Installation) -> None:
    """It goes on working, with a warning and a metric of 0, which becomes 1 when the policies come."""
    with running(bare.extender({"policies": {"look": "1s"}})) as extender:
        eventually(lambda: extender.metric("policies_in_force") == 0)
        assert "whoever may patch nodes or pods can forge our records" in extender.log.read_text()
        eventually(lambda: extender.read("/readyz")[0] == 200)
        assert extender.read("/v1/extender/filter", CALL)[0] == 200
        put_in_force(bare.plane)
        eventually(lambda: extender.metric("policies_in_force") == 1)


def test_sec7_extender_that_insists_answers_nobody(bare: Installation) -> None:
    """Not ready and 503, until the policies are in force."""
    with running(bare.extender({"policies": {"look": "1s", "required": True}})) as extender:
        eventually(lambda: "[-]policies failed" in extender.read("/readyz")[1])
        assert extender.read("/v1/extender/filter", CALL)[0] == 503
        put_in_force(bare.plane)
        eventually(lambda: extender.read("/readyz")[0] == 200)
        assert extender.read("/v1/extender/filter", CALL)[0] == 200
