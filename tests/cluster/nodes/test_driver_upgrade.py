"""A driver is replaced under an agent on a real kubelet, by a stand-in that does what the GPU operator's driver-manager does."""

import time
from collections.abc import Callable

import pytest

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import AgentProcess, enforcing, observing
from tests.cluster.nodes.closings import why_closed
from tests.cluster.nodes.driver_manager import CLIENT, OPERANDS, DriverManager, ModuleInUse
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import wilful
from tests.cluster.nodes.pods import pod, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import decode_observed

NEXT = "580.65.06"
PAUSED = "paused: driver upgrade"
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
    released, served = until_released(node, agent)
    manager.pause()
    manager.unload()
    manager.load(NEXT)
    manager.resume()
    agent.run()
    eventually(lambda: why_closed(extender, node.name) == "")
    assert driver_of(node) == NEXT
    figure(f"an agent that was told to end closed NVML after {released:.2f} s, and served for {served:.1f} s")
    assert released < served


def until_released(node: GpuNode, agent: AgentProcess) -> tuple[float, float]:
    """Tell the agent to end; return after how many seconds NVML was closed, and after how many the process was gone."""
    began = time.monotonic()
    agent.ask_to_end()
    eventually(lambda: not node.machine.users(), SOON_SECONDS, every_seconds=0.02)
    released = time.monotonic() - began
    eventually(lambda: not agent.is_running, SOON_SECONDS, every_seconds=0.02)
    return released, time.monotonic() - began
