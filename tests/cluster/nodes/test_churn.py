"""A thousand pods through the real scheduler, extender, kubelets and device plugins: each container gets exactly its plan."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.admission import put_in_force, unbind_policies
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.history import recorded
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.churn import Churn, churn, most_at_once
from tests.cluster.nodes.killer import killing
from tests.cluster.nodes.nodes import Nodes

MACHINES = {"n0": "hgx_h100", "n1": "two_islands", "n2": "dgx1v"}
PATIENT = "5s"
"""All these nodes share one machine, and wait for its processors; what a hurried agent does is in `tests/kubelet/`."""
FLEET = ("hgx_h100", "dgx1v", "two_islands", "pcie_l40s", "dgx_a100")


@pytest.fixture
def lawless(node_cluster: GpuCluster) -> Iterator[GpuCluster]:
    """Lend the cluster without its admission policies, so that forged records get as far as they can."""
    unbind_policies(node_cluster.plane)
    yield node_cluster
    put_in_force(node_cluster.plane)


def test_every_started_container_holds_its_plan(
    lawless: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """I1: what was planned, what the kubelet lists and what was injected are the same GPUs, for every container."""
    pods = rounds(100, 1000)
    with recorded(lawless.api) as history:
        for node in nodes.start(MACHINES):
            enforcing(node, PATIENT)
        told = churn(lawless, nodes, history, pods, random.Random(0))
    assert history.violations() == []
    started = assert_plans_kept(told, nodes)
    assert told.refused == {}
    assert started >= 0.9 * pods
    figure(
        f"churn of {pods} pods on {len(MACHINES)} real kubelets: {started} containers started, all with the planned GPUs; "
        f"{most_at_once(lawless.extender.said('bind'))} binds at once"
    )


def test_fleet_of_twenty_kubelets(
    lawless: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """The same with twenty real kubelets at once, on machines of all kinds."""
    count, pods = rounds(0, 20), 200
    if not count:
        pytest.skip("twenty kubelets take minutes to start on a small machine: only with --long")
    with recorded(lawless.api) as history:
        for node in nodes.start({f"n{number}": FLEET[number % len(FLEET)] for number in range(count)}):
            enforcing(node, PATIENT)
        began = time.monotonic()
        told = churn(lawless, nodes, history, pods, random.Random(0))
        seconds = time.monotonic() - began
    assert history.violations() == []
    started = assert_plans_kept(told, nodes)
    assert told.refused == {}
    figure(f"{pods} mixed pods on {count} real kubelets in {seconds:.0f} s: {started} containers with the planned GPUs")


EXPLAINED = {
    "bound while no plugin was registered": "no healthy devices present",
    "GPUs of dead pods, from the kubelet's checkpoint": "requested number of devices unavailable",
    "refused by our plugin, as the pod has asked": "FailedPrecondition",
    "the plugin died while it was asked": "code = Unavailable",
}
"""What a kubelet may say when it turns a pod away after a kill, and what it means."""


def test_no_kill_gives_a_container_a_wrong_gpu(
    lawless: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """I7: with `kill -9` of kubelets and agents every few seconds pods may be refused, for known reasons, and nothing worse."""
    pods = rounds(60, 1000)
    with recorded(lawless.api) as history:
        started = nodes.start(MACHINES)
        victims = [process for node in started for process in (enforcing(node, PATIENT), node.kubelet)]
        with killing(victims, random.Random(1), every_seconds=2) as died:
            told = churn(lawless, nodes, history, pods, random.Random(1))
    assert history.violations() == []
    count = assert_plans_kept(told, nodes)
    refusals = Counter(explanation(reason) for reason in told.refused.values())
    figure(
        f"churn of {pods} pods, killed {dict(Counter(died))}: {count} started with their plan, refused {dict(refusals)}"
    )
    assert len(died) >= 3
    assert count >= pods / 3


def explanation(reason: str) -> str:
    """Return what a kubelet's refusal means; one that nobody has thought of fails the test."""
    (found,) = [meaning for meaning, words in EXPLAINED.items() if words in reason] or [reason]
    assert found in EXPLAINED, reason
    return found


def assert_plans_kept(told: Churn, nodes: Nodes) -> int:
    """Fail if any container ever had other GPUs than its plan says; return how many were started."""
    planned, started = told.planned(), [each for node in nodes for each in node.started() if each.pod.startswith("p")]
    injected = {(each.pod, each.container): set(each.env["NVIDIA_VISIBLE_DEVICES"].split(",")) for each in started}
    named = {(each.pod, each.container): {name.split("=")[1] for name in each.cdi_devices} for each in started}
    assert injected == named == {container: planned[container] for container in injected}
    listed = [(container, gpus) for container, gpus in told.held if container[0].startswith("p")]
    assert [each for each in listed if each[1] != planned[each[0]]] == []
    return len(injected)
