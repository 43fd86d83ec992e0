"""What the kubelet knows of our device plugin and of its devices stays true, whatever happens to sockets, streams and pods."""

import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import AgentProcess, enforcing
from tests.cluster.nodes.kubelet import needs_a_newer_kubelet
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import wilful
from tests.cluster.nodes.pods import bound_pod, is_running, pod, refusal, submit, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys


@needs_a_newer_kubelet
def test_i9_checkpoint_forgets_a_dead_pod(
    node_cluster: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """I9: else the next kubelet would take the GPUs of the dead for taken, and turn away the first pod that needs them."""
    node = nodes.one("hgx_h100")
    enforcing(node)
    uid = submit(node, bound_pod(node, "dead", 6))["metadata"]["uid"]
    eventually(lambda: is_running(node, "dead"))
    assert len(node.checkpoint()[uid]) == 6
    node_cluster.delete("dead")
    eventually(lambda: not node.held(), every_seconds=0.01)
    ended = time.monotonic()
    eventually(lambda: uid not in node.checkpoint(), within_seconds=rounds(20, 2), every_seconds=0.01)
    figure(f"I9: the checkpoint had forgotten a dead pod after {time.monotonic() - ended:.1f} s (goal 2)")
    for name in ("next", "next2", "next3", "next4"):
        node.kubelet.kill()
        submit(node, bound_pod(node, name, 7))
        node.kubelet.start()
        became = eventually(partial(became_of, node, name))
        if "no healthy devices present" not in became:  # else it came before any plugin, which tells nothing
            break
        eventually(lambda: node.offered() == set(node.machine.uuids))
    assert became == "runs"


def became_of(node: GpuNode, name: str) -> str:
    """Return why the kubelet has refused a pod, or that it runs; empty while neither is so."""
    return refusal(node, name) or ("runs" if is_running(node, name) else "")


def wiped_sockets(node: GpuNode, agent: AgentProcess) -> None:
    """Clean the plugins' folder under a living kubelet."""
    for socket in node.device_plugins.glob("gputopo-*.sock"):
        socket.unlink(missing_ok=True)  # the plugin deletes its own when it begins anew


def closing_stream(node: GpuNode, agent: AgentProcess) -> None:
    """Have another plugin list our devices without NUMA nodes, and end: since 1.37 a kubelet returns to us with that list."""
    other = wilful(node)
    eventually(lambda: "listed" in other.log_tail())
    other.kill()


def early_start(node: GpuNode, agent: AgentProcess) -> None:
    """Start the agent before its kubelet, whose socket still lies there, and which removes all that it finds there."""
    node.kubelet.kill()
    agent.kill()
    agent.start()
    eventually(lambda: "no kubelet answers" in (node.annotation(keys.STATUS) or ""))
    node.kubelet.start()


@pytest.mark.parametrize("happens", [wiped_sockets, closing_stream, early_start])
def test_i10_plugin_registers_again(
    node_cluster: GpuCluster, nodes: Nodes, happens: Callable[[GpuNode, AgentProcess], None]
) -> None:
    """I10: and the next pod gets its plan, also where the kubelet aligns by NUMA nodes."""
    node = nodes.one("hgx_h100", settings={"topologyManagerPolicy": "best-effort"})
    agent = enforcing(node)
    near = {gpu.uuid: [gpu.numa_node] for gpu in node.machine.topology.gpus}
    eventually(lambda: node.numa_nodes() == near)
    before = len(agent.registrations())
    happens(node, agent)
    eventually(lambda: len(agent.registrations()) > before)
    eventually(lambda: node.numa_nodes() == near)
    node_cluster.submit(pod("four", 4, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "four")
    assert node.held() == {("four", "main"): set(node_cluster.placement("four").containers["main"])}
