"""The real kube-scheduler hands over the pods of a group one at a time, and they end up in one rack."""

from functools import partial

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.polling import eventually

pytestmark = pytest.mark.usefixtures("kubelets")

RACK_LABEL = "topology.kubernetes.io/rack"


def racks(**sizes: int) -> tuple[SimulatedNode, ...]:
    """Return racks of so many machines with eight GPUs, whose names say nothing of the rack."""
    places = [rack for number in range(max(sizes.values())) for rack in sizes if number < sizes[rack]]
    return tuple(
        SimulatedNode(f"n{number:02}", "hgx-h100", labels={RACK_LABEL: rack}) for number, rack in enumerate(places)
    )


def racks_of(gpu_cluster: GpuCluster, nodes: tuple[SimulatedNode, ...], *pods: str) -> set[str]:
    """Return the racks of these pods, empty as long as one of them is not bound."""
    rack_of = {node.name: node.labels[RACK_LABEL] for node in nodes}
    bound = [gpu_cluster.node_of(pod) for pod in pods]
    return {rack_of[node] for node in bound if node} if all(bound) else set()


def test_four_pods_of_a_group_land_in_the_rack_that_is_just_large_enough(gpu_cluster: GpuCluster) -> None:
    """Created at once, on twelve empty machines of three racks: the rack of five stays whole, that of three is too small."""
    nodes = racks(a=5, b=3, c=4)
    gpu_cluster.join(*nodes)
    names = [f"worker-{number}" for number in range(4)]
    gpu_cluster.submit(*(wants(name, 8, "group: llama", "group-size: 4") for name in names))
    assert eventually(partial(racks_of, gpu_cluster, nodes, *names), 60) == {"c"}


def test_two_groups_at_once_do_not_mix(gpu_cluster: GpuCluster) -> None:
    """Whoever comes first takes the rack of three; what is left of it would fit the other group, and is not for it."""
    nodes = racks(a=4, b=3)
    gpu_cluster.join(*nodes)
    names = {"llama": ["llama-0", "llama-1", "llama-2"], "bert": ["bert-0", "bert-1"]}
    ask = [(pod, f"group: {group}", f"group-size: {len(pods)}") for group, pods in names.items() for pod in pods]
    gpu_cluster.submit(*(wants(pod, 8, *said) for pod, *said in sorted(ask, key=lambda each: each[0][-1])))
    found = [eventually(partial(racks_of, gpu_cluster, nodes, *pods), 60) for pods in names.values()]
    assert sorted(map(sorted, found)) == [["a"], ["b"]]


def test_no_pod_of_a_group_starts_before_its_required_rack_can_hold_all(gpu_cluster: GpuCluster) -> None:
    """The event says how many fit; a machine that joins the rack is all that was missing."""
    nodes = racks(a=2, b=2)
    gpu_cluster.join(*nodes)
    names = [f"worker-{number}" for number in range(3)]
    asks = ("group: llama", "group-size: 3", "group-affinity: required-rack")
    gpu_cluster.submit(*(wants(name, 8, *asks) for name in names))
    why = "4 no rack has room for the group's 3 pods to come, at most for 2"
    eventually(lambda: all(why in gpu_cluster.why_pending(name) for name in names))
    assert not gpu_cluster.bound()
    more = SimulatedNode("n99", "hgx-h100", labels={RACK_LABEL: "b"})
    gpu_cluster.join(more)
    assert eventually(partial(racks_of, gpu_cluster, (*nodes, more), *names), 60) == {"b"}
