"""The real kube-scheduler schedules the pods of a PodGroup together, with its gates on, and asks our extender about each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.processes.pod_groups import APISERVER_FLAGS, POD_GROUPS, SCHEDULER_FLAGS, member, pod_group, was_tried
from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.binaries import is_oldest
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster, at_work, wants
from tests.cluster.installation import USERS, Installation
from tests.cluster.judgement import assert_invariants
from tests.cluster.objects import PODS, PRIORITIES, priority_class
from tests.cluster.polling import eventually, until_equal
from tests.cluster.queueing import OURS, PLAIN, SETTINGS, gang, named
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE
from tests.world.kubelets import running_kubelets
from topology.annotations import keys

pytestmark = pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 knows no PodGroup of its own")

ONE_PAIR = (3, 5, 6, 7)
"""What is taken of a machine that has one linked pair left and two GPUs more."""
AT_ONCE = 10
"""PodGroups that are made together."""


@pytest.fixture(scope="module")
def gang_installation(binaries: Path) -> Iterator[Installation]:
    """Start one control plane for all tests here, and install gputopo there."""
    with ControlPlane(binaries, users=USERS, flags=APISERVER_FLAGS, scheduler_flags=SCHEDULER_FLAGS) as plane:
        yield Installation(plane)


@pytest.fixture
def gang_queue(gang_installation: Installation) -> Iterator[GpuCluster]:
    """Lend the same with an extender that plans the queue, and a scheduler that knows of none."""
    plane = gang_installation.plane
    rights = gang_installation.upgraded("extender.config.queue.enabled=true")
    try:
        with rights, running_kubelets(plane.kubeconfig()), at_work(gang_installation, SETTINGS) as lent:
            plane.start_scheduler({"profiles": [{"schedulerName": PLAIN}]})
            yield lent
            assert_invariants(plane.admin, lent.told())
    finally:
        for group in plane.admin.list(POD_GROUPS):
            plane.admin.delete(f"{POD_GROUPS}/{group['metadata']['name']}")
        sweep(plane.admin, keep=[NAMESPACE])


@pytest.fixture
def gang_cluster(gang_installation: Installation) -> Iterator[GpuCluster]:
    """Lend the control plane with extender, scheduler and kubelets at work; see that the invariants hold at the end."""
    plane = gang_installation.plane
    try:
        with running_kubelets(plane.kubeconfig()), at_work(gang_installation) as lent:
            yield lent
            assert_invariants(plane.admin, lent.told())
    finally:
        for group in plane.admin.list(POD_GROUPS):
            plane.admin.delete(f"{POD_GROUPS}/{group['metadata']['name']}")
        sweep(plane.admin, keep=[NAMESPACE])


def all_tried(cluster: GpuCluster, groups: list[str]) -> bool:
    """Whether kube-scheduler has scheduled each PodGroup, or has said that it could not be."""
    return all(was_tried(cluster.api.get(f"{POD_GROUPS}/{group}")) for group in groups)


def sizes_of(cluster: GpuCluster, groups: list[str]) -> dict[str, int]:
    """Return how many pods of each PodGroup are bound."""
    sizes = dict.fromkeys(groups, 0)
    for pod in cluster.api.list(PODS):
        group = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
        if group in sizes and "nodeName" in pod["spec"]:
            sizes[group] += 1
    return sizes


def test_of_a_tight_group_all_pods_are_bound_or_none(
    gang_cluster: GpuCluster, rounds: Callable[[int, int], int]
) -> None:
    """Three machines have a linked pair each: two pods of one group fit, and then one pod of any other by itself.

    By count there would be room for two more groups of two.
    """
    nodes = [SimulatedNode(f"n{number}", "a100-pcie-8-pairs", used=ONE_PAIR) for number in range(3)]
    gang_cluster.join(*nodes)
    for number in range(rounds(2, 200 // AT_ONCE)):
        groups = [f"tight-{number}-{at}" for at in range(AT_ONCE)]
        for group in groups:
            gang_cluster.api.post(POD_GROUPS, pod_group(group, 2))
        pods = [(f"{group}-{at}", group) for group in groups for at in range(2)]
        gang_cluster.submit(*(member(wants(name, 2, "required-affinity: nvlink"), group) for name, group in pods))
        eventually(lambda groups=groups: all_tried(gang_cluster, groups))  # type: ignore[misc]
        until_equal(lambda groups=groups: sorted(sizes_of(gang_cluster, groups).values()), [0] * (AT_ONCE - 1) + [2])  # type: ignore[misc]
        sizes = sizes_of(gang_cluster, groups)
        for name, _ in sorted(pods, key=lambda pod: sizes[pod[1]]):
            # Those that wait go first. A pod that is bound while it is deleted may be gone at once. Its claims stay until an
            # agent reports that the pod holds nothing, and there is no agent here.
            gang_cluster.delete(name)
        eventually(lambda: all("tight" not in pod["metadata"]["name"] for pod in gang_cluster.api.list(PODS)))
        for group in groups:
            gang_cluster.api.delete(f"{POD_GROUPS}/{group}")


def test_a_group_of_higher_priority_evicts_whom_it_needs_and_runs(gang_cluster: GpuCluster) -> None:
    """For a PodGroup kube-scheduler calls no preempt verb; of three full machines it empties two."""
    for name, value in (("low", 10), ("high", 1000)):
        gang_cluster.api.post(PRIORITIES, priority_class(name, value))
    nodes = [SimulatedNode(f"n{number}", "hgx-h100") for number in range(3)]
    gang_cluster.join(*nodes)
    low, vip = [f"low-{number}" for number in range(3)], [f"vip-{number}" for number in range(2)]
    gang_cluster.submit(*(wants(name, 8, priorityClassName="low") for name in low))
    eventually(lambda: all(map(gang_cluster.is_running, low)))
    gang_cluster.api.post(POD_GROUPS, pod_group("vip", 2, priorityClassName="high"))
    gang_cluster.submit(*(member(wants(name, 8, priorityClassName="high"), "vip") for name in vip))
    eventually(lambda: all(map(gang_cluster.is_running, vip)))
    left = {pod["metadata"]["name"] for pod in gang_cluster.api.list(PODS)}
    assert len(left & set(low)) == 1


@pytest.mark.slow
def test_the_queue_plans_a_pod_group_behind_our_gate_and_core_binds_it_whole(gang_queue: GpuCluster) -> None:
    """Of two groups of two nodes each one fits on three nodes; the other one keeps its gates until that has ended."""
    gang_queue.join(*(SimulatedNode(f"n{number}", "hgx-h100") for number in range(3)))
    names = {group: named(gang(group, 2, 8, PLAIN)) for group in ("first", "second")}
    for group in names:
        gang_queue.api.post(POD_GROUPS, pod_group(group, 2))
        gang_queue.submit(*(member(pod, group) for pod in gang(group, 2, 8, PLAIN)))
    until_equal(lambda: sizes_of(gang_queue, [*names]), {"first": 2, "second": 0})
    pods = [gang_queue.pod(name) for name in names["first"]]
    assert all(pod["spec"]["nodeName"] == pod["metadata"]["annotations"][keys.PLANNED] for pod in pods)
    assert all(gang_queue.pod(name)["spec"]["schedulingGates"] == [OURS] for name in names["second"])
    for name in names["first"]:
        gang_queue.complete(name)
    until_equal(lambda: sizes_of(gang_queue, [*names])["second"], 2)
