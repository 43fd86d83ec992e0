"""The real kube-scheduler: it tries a pod again that fits by now, although no object has changed."""

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.polling import eventually

pytestmark = pytest.mark.usefixtures("kubelets")
PAIRS = SimulatedNode("pairs", "a100-pcie-8-pairs", used=(0, 2, 4, 6))


def test_a_pod_for_which_less_will_do_after_a_while_gets_it_then(gpu_cluster: GpuCluster) -> None:
    """No two GPUs that are free are joined by NVLink; by itself kube-scheduler would look again after five minutes."""
    gpu_cluster.join(PAIRS)
    gpu_cluster.submit(wants("patient", 2, "required-affinity: nvlink", "relax-after: 12s"))
    eventually(lambda: gpu_cluster.why_pending("patient"))
    gpu_cluster.await_quiet()
    assert gpu_cluster.node_of("patient") is None
    eventually(lambda: gpu_cluster.is_running("patient"))
