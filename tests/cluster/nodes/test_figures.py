"""How fast the device plugin is on a real kubelet; its goals are asked for with `--long`, and ten times as much on other days."""

import time
from collections.abc import Callable

import pytest

from tests.cluster.api import Json
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import enforcing, shares_gpus
from tests.cluster.nodes.histogram import Histogram
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import bound_pod, is_running, pod, share_pod, submit, wait_running
from tests.cluster.objects import PODS
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations.keys import SHARE_RESOURCE

pytestmark = pytest.mark.alone

IDENTIFICATION = "gputopo_agent_identification_duration_seconds"
ADMISSION = "kubelet_topology_manager_admission_duration_ms"
"""By the kubelet's clock, all that admitting a pod takes: GetPreferredAllocation, Allocate, and little else."""


def test_answers_beside_many_pods(
    node_cluster: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """With fifty pods running, the pod under admission is found and served in time."""
    node, others, slack = nodes.one("hgx_h100"), rounds(10, 50), rounds(10, 1)
    agent = enforcing(node)
    for number in range(others):
        submit(node, bound_pod(node, f"other{number}", 0))
    eventually(lambda: all(is_running(node, f"other{number}") for number in range(others)), within_seconds=120)
    before, count = Histogram.of(node.kubelet.metrics(), ADMISSION), rounds(8, 100)
    for number in range(count):
        name = f"p{number}"
        node_cluster.submit(pod(name, 2, schedulerName=SCHEDULER_NAME))
        wait_running(node_cluster, name)
        node_cluster.delete(name)
    found = Histogram.of(agent.metrics(), IDENTIFICATION)
    admitted = Histogram.of(node.kubelet.metrics(), ADMISSION).since(before)
    figure(
        f"beside {others} pods, at most: identification p50 {1000 * found.at_most(0.5):g} ms (goal 5), "
        f"p99 {1000 * found.at_most(0.99):g} ms (goal 25); "
        f"admission of a pod, in which the kubelet asks twice, p99 {admitted.at_most(0.99):g} ms (goal 100)"
    )
    assert found.count == admitted.count == count
    assert found.at_most(0.5) <= slack * 0.005
    assert found.at_most(0.99) <= slack * 0.025
    assert admitted.at_most(0.99) <= slack * 102.4, "the kubelet's bucket with the goal in it"


def test_a_thousand_share_devices_cost_the_kubelet_little(
    nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Eight GPUs of 192 GiB: pods with shares are admitted about as fast as those with whole GPUs, its checkpoint included."""
    node, count, others = nodes.one("hgx_h100"), rounds(3, 40), rounds(10, 30)
    node.machine.become(lambda text: f"{text}gpu 0-7 memory_mib {193 * 1024}\n")
    enforcing(node, sharing={"gpus": "all", "limits": "preferred"})
    # Until the node says that it shares, its devices may be taken back for a moment; nobody plans for it then.
    eventually(lambda: shares_gpus(node) and node.allocatable(SHARE_RESOURCE) == 8 * 192)
    for number in range(others):
        submit(node, share_pod(f"other{number}", 20, nodeName=node.name))
    eventually(lambda: all(is_running(node, f"other{number}") for number in range(others)), within_seconds=120)

    def admitted(kind: str, made: Callable[[str], Json]) -> Histogram:
        before = Histogram.of(node.kubelet.metrics(), ADMISSION)
        for number in range(count):
            name = f"{kind}{number}"
            submit(node, made(name))
            eventually(lambda name=name: is_running(node, name), within_seconds=60)  # type: ignore[misc]
            node.plane.admin.delete(f"{PODS}/{name}")
            eventually(lambda: len(node.plane.admin.list(PODS)) == others, within_seconds=60)
        return Histogram.of(node.kubelet.metrics(), ADMISSION).since(before)

    shares = admitted("share", lambda name: share_pod(name, 20, nodeName=node.name))
    whole = admitted("whole", lambda name: bound_pod(node, name, 1))
    began = time.monotonic()
    node.offered()
    asked_ms = 1000 * (time.monotonic() - began)
    kib = (node.device_plugins / "kubelet_internal_checkpoint").stat().st_size // 1024
    figure(
        f"1,536 share devices, {others} pods with 20 GiB each: admission of a share p50 at most {shares.at_most(0.5):g} ms, p99 "
        f"{shares.at_most(0.99):g} (whole GPU: {whole.at_most(0.5):g}, {whole.at_most(0.99):g}); "
        f"checkpoint {kib} KiB; PodResources answers in {asked_ms:.0f} ms"
    )
    assert shares.at_most(0.5) <= 8 * whole.at_most(0.5), "and the kubelet's buckets double"


def test_registers_again_after_a_kubelet_restart(
    nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Each new kubelet is found at once; the time is from its socket's to the plugin's word that it is registered."""
    node = nodes.one("hgx_h100")
    agent, taken = enforcing(node), []
    for _ in range(rounds(3, 10)):
        node.kubelet.kill()
        known = len(agent.registrations())
        node.kubelet.start()
        eventually(lambda known=known: len(agent.registrations()) > known, within_seconds=60)  # type: ignore[misc]
        taken.append(agent.registrations()[-1] - socket_made(node))
        eventually(lambda: node.offered() == set(node.machine.uuids), within_seconds=60)
    milliseconds = ", ".join(f"{seconds * 1000:.0f}" for seconds in taken)
    figure(f"re-registration after kubelet restarts: {milliseconds} ms (goal 100)")
    assert max(taken) <= rounds(10, 1) * 0.1


def socket_made(node: GpuNode) -> float:
    """Return when the kubelet made its socket, in seconds since the epoch."""
    return (node.device_plugins / "kubelet.sock").stat().st_ctime
