"""The real kube-scheduler places GPU pods by their links, and what it is told stays true."""

import time
from collections.abc import Callable

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.gpu_cluster import GpuCluster, uuids, wants
from tests.cluster.polling import eventually
from topology.node.links import Affinity

pytestmark = pytest.mark.usefixtures("kubelets")

RING = "required-affinity: nvlink"
# Five GPUs of this cube mesh are free, and NVLinks join four of them to a ring in one way only.
THE_ONE = SimulatedNode("v100-right", "dgx-1v", used=(4, 5, 6))
EMPTIER = (
    SimulatedNode("l40s-empty", "l40s-8"),
    SimulatedNode("bridges-empty", "a100-pcie-8-pairs"),
    SimulatedNode("t4-empty", "t4-4"),
    SimulatedNode("v100-awkward", "dgx-1v", used=(3, 4, 5)),
)


def test_pod_that_requires_nvlink_gets_the_one_ring_that_is_free(gpu_cluster: GpuCluster) -> None:
    """Nodes with as many or more free GPUs have no ring; on the right node the set is the ring, and the ledger says so."""
    gpu_cluster.join(THE_ONE, *EMPTIER)
    gpu_cluster.submit(wants("ring", 4, RING))
    assert eventually(lambda: gpu_cluster.node_of("ring")) == THE_ONE.name
    placement = gpu_cluster.placement("ring")
    assert set(placement.containers["main"]) == uuids(THE_ONE, range(4)) == gpu_cluster.claims(THE_ONE.name, "ring")
    assert placement.affinity is Affinity.NVLINK


def test_pod_that_requires_nothing_goes_where_its_gpus_are_joined_best(gpu_cluster: GpuCluster) -> None:
    """All nodes fit, and the scheduler's own scores prefer emptier ones; ours decides."""
    gpu_cluster.join(THE_ONE, *EMPTIER)
    gpu_cluster.submit(wants("trainer", 4))
    assert eventually(lambda: gpu_cluster.node_of("trainer")) == THE_ONE.name
    assert set(gpu_cluster.placement("trainer").containers["main"]) == uuids(THE_ONE, range(4))


@pytest.mark.parametrize("end", [GpuCluster.complete, GpuCluster.delete], ids=["completes", "is deleted"])
def test_pod_waits_for_a_ring_and_starts_when_one_is_free(
    gpu_cluster: GpuCluster, figure: Callable[[str], None], end: Callable[[GpuCluster, str], None]
) -> None:
    """Its event counts our reasons; after the pod in the way ends it runs within 15 seconds."""
    gpu_cluster.join(*EMPTIER, SimulatedNode("v100-awkward-too", "dgx-1v", used=(3, 4, 5)))
    gpu_cluster.submit(wants("ring", 4, RING))
    why = "5 no 4 free GPUs share an NVLink ring (wait or let it relax)"
    eventually(lambda: (said := gpu_cluster.why_pending("ring")).startswith("0/5 nodes are") and why in said)
    began = time.monotonic()
    end(gpu_cluster, "v100-awkward-occupant")
    eventually(lambda: gpu_cluster.is_running("ring"))
    figure(f"a pod that waited for a ring ran {time.monotonic() - began:.2f} s after the one in the way was to end")


def test_pod_without_gpus_never_reaches_the_extender(gpu_cluster: GpuCluster) -> None:
    """The scheduler places it alone; a GPU pod after it is the first that we hear of."""

    def calls() -> list[list[str]]:
        verbs = ("filter", "prioritize", "bind")
        return [[said["pod"] for said in gpu_cluster.extender.said(verb)] for verb in verbs]

    gpu_cluster.join(THE_ONE, *EMPTIER)
    before = calls()
    gpu_cluster.submit(wants("web", 0))
    eventually(lambda: gpu_cluster.is_running("web"))
    assert calls() == before
    gpu_cluster.submit(wants("notebook", 1))
    eventually(lambda: gpu_cluster.is_running("notebook"))
    eventually(lambda: calls() == [[*pods, "default/notebook"] for pods in before])  # it logs when it has answered


def test_claims_of_a_deleted_pod_are_released(gpu_cluster: GpuCluster) -> None:
    """Once its containers have ended the ledger forgets it, and a pod of the same size fits again."""
    gpu_cluster.join(SimulatedNode("h100", "hgx-h100"))
    gpu_cluster.submit(wants("first", 8, RING))
    eventually(lambda: gpu_cluster.is_running("first"))
    gpu_cluster.delete("first")
    eventually(lambda: not gpu_cluster.ledger("h100").claims)
    gpu_cluster.submit(wants("second", 8, RING))
    eventually(lambda: gpu_cluster.is_running("second"))


def test_record_survives_the_extender(gpu_cluster: GpuCluster) -> None:
    """What was promised before a kill -9 stands after it, and is respected."""
    gpu_cluster.join(THE_ONE)
    gpu_cluster.submit(wants("before", 4, RING))
    eventually(lambda: gpu_cluster.is_running("before"))
    ledger, placement = gpu_cluster.ledger(THE_ONE.name), gpu_cluster.placement("before")
    gpu_cluster.extender.kill()
    gpu_cluster.extender.run()
    gpu_cluster.submit(wants("after", 1))
    eventually(lambda: gpu_cluster.is_running("after"))
    assert gpu_cluster.placement("before") == placement
    assert set(ledger.claims) < set(gpu_cluster.ledger(THE_ONE.name).claims)
    assert set(gpu_cluster.placement("after").containers["main"]) == uuids(THE_ONE, [7])
