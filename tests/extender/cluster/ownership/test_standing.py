"""What is known of a claim's pod, case by case: only what is proven lets go of its GPU."""

from __future__ import annotations

import pytest

from extender.cluster.caches.tombstones import Tombstone
from extender.cluster.objects.gpu_pods import has_stopped, read_gpu_pod
from extender.cluster.objects.kinds import Pod
from extender.cluster.ownership.standing import Standing, standing_of_pod, standing_of_tombstone
from tests.extender.builders import pod


@pytest.mark.parametrize(
    ("item", "unreported", "reported"),
    [
        (pod("p"), Standing.PENDING, Standing.PENDING),
        (pod("p", deleting=True), Standing.PENDING, Standing.PENDING),
        (pod("p", phase="Failed"), Standing.FREE, Standing.FREE),
        (pod("p", on="n2", phase="Running"), Standing.FREE, Standing.FREE),
        (pod("p", on="n1", phase="Running"), Standing.HELD, Standing.HELD),
        (pod("p", on="n1", phase="Running", deleting=True, terminated=True), Standing.HELD, Standing.HELD),
        (pod("p", on="n1", phase="Failed"), Standing.GONE, Standing.FREE),
        (pod("p", on="n1", phase="Failed", terminated=False), Standing.GONE, Standing.FREE),
        (pod("p", on="n1", phase="Succeeded", terminated=True), Standing.FREE, Standing.FREE),
    ],
)
def test_of_a_pod_that_exists(item: Pod, unreported: Standing, reported: Standing) -> None:
    """Before and after its node's agent has shown the GPU free."""
    found = read_gpu_pod(item)
    assert found
    found = type(found)(found.pod, found.gpus, found.placed, has_stopped(item))
    assert standing_of_pod(found, "n1", reported_free=False) is unreported
    assert standing_of_pod(found, "n1", reported_free=True) is reported


@pytest.mark.parametrize(
    ("tombstone", "nothing", "other_node", "reported"),
    [
        (None, Standing.UNSEEN, Standing.UNSEEN, Standing.UNSEEN),
        (Tombstone(), Standing.UNSEEN, Standing.UNSEEN, Standing.UNSEEN),
        (Tombstone(node="n1"), Standing.UNSEEN, Standing.UNSEEN, Standing.UNSEEN),
        (Tombstone(gone=True), Standing.GONE, Standing.FREE, Standing.FREE),
        (Tombstone(node="n1", gone=True, final=True), Standing.GONE, Standing.FREE, Standing.FREE),
        (Tombstone(gone=True, final=True), Standing.FREE, Standing.FREE, Standing.FREE),
        (Tombstone(node="n2"), Standing.FREE, Standing.FREE, Standing.FREE),
        (Tombstone(node="n1", stopped=True), Standing.FREE, Standing.FREE, Standing.FREE),
        (Tombstone(node="n1", stopped=True, gone=True, final=True), Standing.FREE, Standing.FREE, Standing.FREE),
    ],
)
def test_of_a_pod_that_left(
    tombstone: Tombstone | None, nothing: Standing, other_node: Standing, reported: Standing
) -> None:
    """With nothing more known, with a claim of a former node, and with a report that shows the GPU free."""
    assert standing_of_tombstone(tombstone, "n1", other_incarnation=False, reported_free=False) is nothing
    assert standing_of_tombstone(tombstone, "n1", other_incarnation=True, reported_free=False) is other_node
    assert standing_of_tombstone(tombstone, "n1", other_incarnation=False, reported_free=True) is reported
