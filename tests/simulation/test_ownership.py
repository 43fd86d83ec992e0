"""What strangers spoil is held against us as far as we can do anything about it, and no farther."""

from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks.simulated.double.resources import NODES, PODS, Object
from benchmarks.simulated.double.store import StoreChange
from tests.extender.builders import DGX
from tests.simulation.invariants.ownership import Ownership
from tests.simulation.run import run
from tests.simulation.trace import Trace
from tests.simulation.world.server import Server
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.annotations.records import Claim, Ledger, PlacementRecord, encode_ledger, encode_placement
from topology.annotations.status_codec import encode_status
from topology.formats.catalog import machine
from topology.node.status import NodeGpuStatus

GPUS = tuple(gpu.uuid for gpu in machine(DGX, host="n0").gpus)
OURS, STRANGER = "uid-ours", "uid-stranger"


class Around:
    """A server with one node, and what happens to it."""

    def __init__(self) -> None:
        self.ears: list[Any] = []
        self.node: Object = {}
        self.all_pods: list[Object] = []
        self.generation = 0
        self.trace = Trace(lambda: 0.0)
        self.ownership = Ownership(cast("Server", self), self.trace, lambda: 0.0, 2)
        self.ledger("somebody")

    def nodes(self) -> list[Object]:
        """Return the node."""
        return [self.node]

    def pod(self, uid: str) -> Object | None:
        """Return a pod."""
        return next((pod for pod in self.all_pods if pod["metadata"]["uid"] == uid), None)

    def find(self, *_: str) -> Object:
        """Return the node."""
        return self.node

    def ledger(self, writer: str, *claims: Claim) -> None:
        """Write the ledger."""
        self.generation += 1
        before, texts = self.node or None, {keys.TOPOLOGY: encode_topology(machine(DGX, host="n0"))}
        texts |= {
            keys.STATUS: encode_status(NodeGpuStatus(1)),
            keys.LEDGER: encode_ledger(Ledger(self.generation, claims, "n0")),
        }
        self.node = {"metadata": {"name": "n0", "uid": "n0", "resourceVersion": "1", "annotations": texts}}
        self._tell(writer, NODES, ("", "n0"), before, self.node)

    def bind(self, writer: str, uid: str, *gpus: str, gib: int = 0) -> None:
        """Bind a pod, with a record if GPUs are said."""
        limits = {keys.SHARE_RESOURCE: str(gib)} if gib else {keys.GPU_RESOURCE: "1"}
        annotations = {keys.PLACEMENT: encode_placement(PlacementRecord({"main": gpus}))} if gpus else {}
        before: Object = {
            "metadata": {"name": uid, "uid": uid, "namespace": "default", "annotations": {}, "resourceVersion": "1"},
            "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
            "status": {},
        }
        after = {
            **before,
            "metadata": {**before["metadata"], "annotations": annotations},
            "spec": {**before["spec"], "nodeName": "n0"},
        }
        self.all_pods.append(after)
        self._tell(writer, PODS, ("default", uid), before, after)

    def _tell(self, writer: str, resource: Any, key: tuple[str, str], before: Object | None, after: Object) -> None:
        for ear in self.ears:
            ear(writer, StoreChange(resource, key, before, after, self.generation))


def claim(uid: str, gpu: str, gib: int | None = None) -> Claim:
    return Claim(gpu, uid, "default", uid, "main", "1", memory_gib=gib)


@pytest.fixture
def around() -> Around:
    """Both pods have the first GPU: ours with a claim and a record, the stranger's with neither."""
    around = Around()
    around.bind("other-scheduler", STRANGER, gib=4)
    around.ownership.started(STRANGER, frozenset(GPUS[:1]), ())
    around.ledger("extender-0", claim(OURS, GPUS[0]))
    around.bind("extender-0", OURS, GPUS[0])
    assert not around.trace.violations
    return around


def test_a_rebuilt_ledger_may_name_the_pod_that_was_bound_around_us(around: Around) -> None:
    """It has room for one of them."""
    around.ledger("stranger")
    around.ledger("extender-0", claim(STRANGER, GPUS[0], 4))
    assert not around.trace.violations


def test_our_own_write_takes_no_claim_for_such_a_pod(around: Around) -> None:
    """Nobody else had touched the ledger."""
    around.ledger("extender-0", claim(STRANGER, GPUS[0], 4))
    assert [violation[:4] for violation in around.trace.violations] == ["INV2"]


@pytest.mark.parametrize("claims", [(), (claim(STRANGER, GPUS[1], 4),), (claim("uid-nobody", GPUS[0], 4),)])
def test_a_rebuilt_ledger_that_names_no_such_pod_on_the_gpu_leaves_out_none_of_ours(
    around: Around, claims: tuple[Claim, ...]
) -> None:
    """There was room for it."""
    around.ledger("stranger")
    around.ledger("extender-0", *claims)
    assert "INV2" in {violation[:4] for violation in around.trace.violations}


def test_a_pod_that_does_not_run_there_is_no_excuse(around: Around) -> None:
    """Its containers have stopped."""
    around.ledger("stranger")
    around.ownership.stopped(STRANGER)
    around.ledger("extender-0", claim(STRANGER, GPUS[0], 4))
    assert [violation[:4] for violation in around.trace.violations] == ["INV2"]


@pytest.mark.parametrize("is_reported", [False, True])
def test_a_pod_with_a_record_may_run_there_until_its_kubelet_reports_the_end(is_reported: bool) -> None:
    """Its containers have stopped, and the report of that was lost."""
    around = Around()
    around.ledger("extender-0", claim(OURS, GPUS[0]))
    around.bind("extender-0", OURS, GPUS[0])
    around.bind("other-scheduler", STRANGER, GPUS[0])
    around.ownership.started(STRANGER, frozenset(GPUS[:1]), ())
    around.ownership.stopped(STRANGER)
    if is_reported:
        around.all_pods[-1]["status"]["containerStatuses"] = [{"state": {"terminated": {}}}]
    around.ledger("stranger")
    around.ledger("extender-0", claim(STRANGER, GPUS[0]))
    assert [violation[:4] for violation in around.trace.violations] == ["INV2"] * is_reported


@pytest.mark.slow
@pytest.mark.parametrize("seed", [414, 441, 570])
def test_the_seeds_in_which_this_came_up(seed: int) -> None:
    """570: a share was bound around us. 414: another extender adopted the pod during bind. 441: a report was lost."""
    assert run(seed).violations == ()
