"""Observe mode next to a device plugin that names GPUs after their device nodes, as Google's does on GKE."""

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import observing
from tests.cluster.nodes.kubelet import DEVICE_PLUGINS
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, submit, wait_running
from tests.cluster.nodes.test_observe import reported
from tests.cluster.objects import GPU
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME


def test_gpus_named_after_device_nodes_are_offered_and_reported_by_uuid(node_cluster: GpuCluster, nodes: Nodes) -> None:
    """The driver numbers device nodes in another order than NVML its GPUs."""
    node = nodes.one("two_islands")
    node.machine.become(lambda text: text + "".join(f"gpu {index} minor {7 - index}\n" for index in range(8)))
    uuids = {f"nvidia{7 - index}": uuid for index, uuid in enumerate(node.machine.uuids)}
    node.run("wilful", node.parts.tools / "wilful", DEVICE_PLUGINS, GPU, *uuids)
    node.wait_allocatable(8)
    observing(node)
    submit(node, pod("two", 2, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "two")
    (names,) = node.held().values()
    eventually(lambda: reported(node) == {"two": {uuids[name] for name in names}})
