"""How fast the device plugin is on a real kubelet: figures, and no claim that a busy machine could break."""

import json
import re
from collections.abc import Callable
from datetime import datetime

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.installation import SCHEDULER_NAME
from tests.cluster.nodes.agents import AgentProcess, enforcing
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import bound_pod, is_running, pod, submit, wait_running
from tests.cluster.polling import eventually

IDENTIFICATION = "gputopo_agent_identification_duration_seconds"
ALLOCATE = "kubelet_device_plugin_alloc_duration_seconds"


def test_answers_beside_many_pods(
    node_cluster: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """With fifty pods running, the pod under admission is found and served; the histograms say how fast."""
    node, others = nodes.one("hgx_h100"), rounds(10, 50)
    agent = enforcing(node)
    for number in range(others):
        submit(node, bound_pod(node, f"other{number}", 0))
    eventually(lambda: all(is_running(node, f"other{number}") for number in range(others)), within_seconds=120)
    for number in range(rounds(8, 100)):
        name = f"p{number}"
        node_cluster.submit(pod(name, 2, schedulerName=SCHEDULER_NAME))
        wait_running(node_cluster, name)
        node_cluster.delete(name)
    found = at_most(agent.metrics(), IDENTIFICATION)
    served = at_most(node.kubelet.metrics(), ALLOCATE)
    assert found and served
    figure(f"beside {others} pods, at most: identification {found}; Allocate, by the kubelet's own clock, {served}")


def test_registers_again_after_a_kubelet_restart(nodes: Nodes, figure: Callable[[str], None]) -> None:
    """Each new kubelet is found at once; the time is from its socket's to the plugin's word that it is registered."""
    node = nodes.one("hgx_h100")
    agent, taken = enforcing(node), []
    for _ in range(3):
        node.kubelet.kill()
        known = len(registrations(agent))
        node.kubelet.start()
        eventually(lambda known=known: len(registrations(agent)) > known, within_seconds=60)  # type: ignore[misc]
        taken.append(registrations(agent)[-1] - socket_made(node))
        eventually(lambda: node.offered() == set(node.machine.uuids), within_seconds=60)
    figure(f"re-registration after kubelet restarts: {', '.join(f'{seconds * 1000:.0f} ms' for seconds in taken)}")


def at_most(metrics: str, histogram: str) -> str:
    """Return the upper bounds of median and 99th percentile that a Prometheus histogram gives, with its count."""
    buckets = [
        (float(found[1]), float(found[2]))
        for found in re.finditer(rf'^{histogram}_bucket{{.*?le="([^"]+)".*?}} (\S+)$', metrics, re.MULTILINE)
    ]
    count = buckets[-1][1] if buckets else 0
    if not count:
        return ""
    bounds = [next(bound for bound, below in buckets if below >= ratio * count) for ratio in (0.5, 0.99)]
    return f"p50 {bounds[0] * 1000:g} ms, p99 {bounds[1] * 1000:g} ms of {count:.0f}"


def registrations(agent: AgentProcess) -> list[float]:
    """Return when the agent said that it had registered, in seconds since the epoch."""
    lines = (json.loads(line) for line in agent.log.read_text().splitlines() if line.startswith("{"))
    said = [line["ts"] for line in lines if line.get("msg") == "registered with the kubelet"]
    return [datetime.fromisoformat(ts).timestamp() for ts in said]


def socket_made(node: GpuNode) -> float:
    """Return when the kubelet made its socket, in seconds since the epoch."""
    return (node.device_plugins / "kubelet.sock").stat().st_ctime
