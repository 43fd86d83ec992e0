"""Row N13 on a real node: NVML does not come back from a call, and everybody but its callers goes on."""

import re
import time
from collections.abc import Callable

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import bound_pod, is_running, pod, submit, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.status_codec import decode_status

HANGS_SECONDS = 50


def test_n13_node_whose_nvml_hangs_is_closed_and_its_kubelet_served(
    node_cluster: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """All GPUs are told to be unfit in half a minute; before that a pod still gets its plan, and afterwards all is as before."""
    node = nodes.one("hgx_h100")
    agent = enforcing(node)
    began = time.monotonic()
    node.machine.say(f"hang nvmlDeviceGetMemoryInfo_v2 3 {HANGS_SECONDS}")
    time.sleep(2)  # a look is made every second
    node_cluster.submit(pod("meanwhile", 2, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "meanwhile")
    assert node.held()["meanwhile", "main"] == set(node_cluster.placement("meanwhile").containers["main"])
    eventually(lambda: unfit(node) == set(node.machine.uuids), within_seconds=HANGS_SECONDS)
    told = time.monotonic() - began
    eventually(lambda: not node.offered(), within_seconds=30)
    assert re.search(r'^gputopo_agent_discovery_failures_total{code="TIMEOUT"} [1-9]', agent.metrics(), re.MULTILINE)
    assert "meanwhile" in (node.annotation(keys.OBSERVED) or "")
    node.machine.repair()
    eventually(lambda: not unfit(node) and node.allocatable() == len(node.machine.uuids), within_seconds=120)
    submit(node, bound_pod(node, "after", 2))
    eventually(lambda: is_running(node, "after"))
    figure(f"N13: a node whose NVML hangs is closed {told:.0f} s after the call (goal 30)")
    assert told < rounds(60, 30)


def unfit(node: GpuNode) -> set[str]:
    """Return the GPUs that the node says are not to be given away."""
    return set(decode_status(node.annotation(keys.STATUS) or "").unhealthy)
