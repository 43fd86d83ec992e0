"""A node of the tests is a real one: its kubelet asks the device plugin, tells who holds what, and survives its own death."""

from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import wilful
from tests.cluster.nodes.pods import bound_pod, is_running, refusal, submit
from tests.cluster.polling import eventually


def test_kubelet_runtime_and_checkpoint_agree_who_holds_what(nodes: Nodes) -> None:
    """PodResources, the environment injected by the runtime and the kubelet's own file name the same GPUs."""
    node = nodes.one("hgx_h100")
    wilful(node)
    pod = submit(node, bound_pod(node, "two", 2))
    eventually(lambda: is_running(node, "two"))
    (started,) = node.started()
    visible = set(started.env["NVIDIA_VISIBLE_DEVICES"].split(","))
    assert len(visible) == 2
    assert node.held() == {("two", "main"): visible}
    assert node.checkpoint() == {pod["metadata"]["uid"]: visible}


def test_pods_survive_the_death_of_their_kubelet(nodes: Nodes) -> None:
    """After `kill -9` the next kubelet finds the pod with its GPUs, the plugin registers again, and other pods can start."""
    node = nodes.one("hgx_h100")
    wilful(node)
    submit(node, bound_pod(node, "two", 2))
    eventually(lambda: is_running(node, "two"))
    before = node.held()
    node.kubelet.kill()
    node.kubelet.start()
    eventually(lambda: node.offered() == set(node.machine.uuids), within_seconds=60)
    submit(node, bound_pod(node, "six", 6))
    eventually(lambda: is_running(node, "six"), within_seconds=60)
    assert node.held()["two", "main"] == before["two", "main"]
    assert [each.pod for each in node.started()] == ["two", "six"]


def test_what_the_kubelet_refuses_says_why(nodes: Nodes) -> None:
    """A pod that asks for more than there is ends at once, with the kubelet's reason."""
    node = nodes.one("hgx_h100")
    wilful(node)
    submit(node, bound_pod(node, "nine", 9))
    assert "UnexpectedAdmissionError" in eventually(lambda: refusal(node, "nine"), within_seconds=30)


def test_single_numa_node_is_enforced_on_a_pretend_machine(nodes: Nodes) -> None:
    """The kubelet believes in two NUMA nodes: four GPUs come from one, and five cannot be had."""
    settings = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}
    node = nodes.one("hgx_h100", settings=settings)
    wilful(node, with_numa=True)
    submit(node, bound_pod(node, "four", 4))
    submit(node, bound_pod(node, "five", 5))
    assert "TopologyAffinityError" in eventually(lambda: refusal(node, "five"), within_seconds=30)
    eventually(lambda: is_running(node, "four"))
    near = {gpu.numa_node for gpu in node.machine.topology.gpus if gpu.uuid in node.held()["four", "main"]}
    assert len(near) == 1
