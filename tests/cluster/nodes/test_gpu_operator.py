"""The GPU operator on real kubelets: what a stand-in for its driver-manager does to a node with our agent, and its validator."""

import time
from collections.abc import Callable

import pytest

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import enforcing, observing
from tests.cluster.nodes.closings import why_closed
from tests.cluster.nodes.driver_manager import CLIENT, OPERANDS, DriverManager, ModuleInUse
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import wilful
from tests.cluster.nodes.pods import bound_pod, container, pod, submit, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import decode_observed

VALIDATOR = "nvidia-device-plugin-validator-x7x2p"
NEXT = "580.65.06"
PAUSED = "paused: driver upgrade"
WAITED_FOR = "no pod is on its way any more"
"""What an agent logs before all that takes its time at the end."""
SOON_SECONDS = 10.0
"""For what takes a second on a quiet machine."""


def driver_of(node: GpuNode) -> str | None:
    """Return the driver that the node's agent has published."""
    return decode_topology(node.annotation(keys.TOPOLOGY) or "").driver_version


def holders(node: GpuNode) -> set[str]:
    """Return the pods that the node's agent says to hold GPUs."""
    return {who.name for who in decode_observed(node.annotation(keys.OBSERVED) or "").gpus.values()}


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_agent_lets_the_driver_go_where_an_older_operator_pauses_its_own_programs(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None], mode: str
) -> None:
    """The node says so, who runs there stays recorded, and afterwards it opens by itself, with the new driver."""
    node, extender = nodes.one("hgx_h100"), node_cluster.extender
    plugin = wilful(node) if mode == "observe" else None
    observing(node) if mode == "observe" else enforcing(node)
    manager = DriverManager(node, *OPERANDS, device_plugin="false" if mode == "enforce" else "true")
    node_cluster.submit(pod("before", 2, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "before")
    with pytest.raises(ModuleInUse):
        manager.unload()
    manager.pause()
    began = time.monotonic()
    eventually(lambda: not node.machine.users(), SOON_SECONDS)
    released = time.monotonic() - began
    if plugin:
        plugin.kill()
    eventually(lambda: why_closed(extender, node.name) == PAUSED, SOON_SECONDS)
    node_cluster.submit(pod("after", 4, schedulerName=SCHEDULER_NAME))
    time.sleep(2.5)  # two looks of the agent, and as many of the kubelet
    assert holders(node) == {"before"}
    assert len(node_cluster.claims(node.name, "before")) == 2
    manager.evict()
    eventually(lambda: not holders(node))
    manager.unload()
    manager.load(NEXT)
    manager.resume()
    if plugin:
        wilful(node)
    wait_running(node_cluster, "after")
    eventually(lambda: driver_of(node) == NEXT)
    eventually(node.machine.users)
    figure(f"mode {mode}: NVML was closed {released:.1f} s after the operator had paused its own programs")


def test_validator_gets_a_gpu_of_nobody_else(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """Its pod names its node, and asks for one GPU in an init container, which the kubelet lists nowhere; it counts."""
    node = nodes.one("hgx_h100")
    enforcing(node)
    node_cluster.submit(pod("ours", 3, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "ours")
    began = time.monotonic()
    submit(node, bound_pod(node, VALIDATOR, 0, initContainers=[container("plugin-validation", 1)]))
    (first,) = eventually(lambda: [each for each in node.started() if each.pod == VALIDATOR])
    figure(f"the validator's container ran {time.monotonic() - began:.1f} s after its pod was made")
    assert set(first.env["NVIDIA_VISIBLE_DEVICES"].split(",")).isdisjoint(node.held()["ours", "main"])
    node_cluster.submit(pod("next", 4, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "next")
    node_cluster.submit(pod("more", 1, schedulerName=SCHEDULER_NAME))
    eventually(lambda: node_cluster.why_pending("more"))
    node_cluster.delete(VALIDATOR)
    wait_running(node_cluster, "more")


def test_agent_that_is_told_to_end_lets_the_driver_go_first(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """Operators from 26.7 on have its pod ended by a label: while it still serves, the module can be unloaded."""
    node, extender = nodes.one("hgx_h100"), node_cluster.extender
    agent = enforcing(node)
    manager = DriverManager(node, *OPERANDS, CLIENT, device_plugin="false")
    eventually(lambda: why_closed(extender, node.name) == "" and node.machine.users())
    manager.pause()
    eventually(lambda: why_closed(extender, node.name) == PAUSED, SOON_SECONDS)
    manager.resume()
    eventually(lambda: why_closed(extender, node.name) == "" and node.machine.users())
    began = time.monotonic()
    agent.ask_to_end()
    eventually(lambda: not node.machine.users(), SOON_SECONDS, every_seconds=0.02)
    released, said = time.monotonic() - began, {line.get("msg") for line in agent.logged()}
    eventually(lambda: not agent.is_running, SOON_SECONDS, every_seconds=0.02)
    served = time.monotonic() - began
    manager.pause()
    manager.unload()
    manager.load(NEXT)
    manager.resume()
    agent.run()
    eventually(lambda: why_closed(extender, node.name) == "")
    assert driver_of(node) == NEXT
    figure(f"an agent that was told to end closed NVML after {released:.2f} s, and served for {served:.1f} s")
    assert WAITED_FOR not in said
