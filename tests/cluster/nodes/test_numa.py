"""On a machine of two NUMA nodes whose kubelet insists on one of them, the planned GPUs are a set that it admits."""

import random
from collections import Counter
from collections.abc import Callable

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import is_running, pod, submit, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys

SETTINGS = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}
ANNOTATIONS = {keys.REQUIRED_AFFINITY: "numa-node", keys.DEVICE_MISMATCH: "refuse"}


def test_every_set_that_fits_one_numa_node_is_admitted(
    node_cluster: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Whatever is taken: where one NUMA node has enough free GPUs the pod runs there, and else it waits and is not refused."""
    node = nodes.one("pcie_l40s", settings=SETTINGS)
    enforcing(node)
    chance, outcomes = random.Random(0), Counter[bool]()
    taken: dict[str, set[str]] = {}
    for number in range(rounds(12, 60)):
        name, size = f"p{number}", chance.randint(1, 4)
        fits = max(free_by_numa_node(node, taken).values()) >= size
        submit(node, pod(name, size, annotations=ANNOTATIONS, schedulerName=SCHEDULER_NAME))
        if fits:
            wait_running(node_cluster, name)
            taken[name] = node.held()[name, "main"]
            assert taken[name] == set(node_cluster.placement(name).containers["main"])
            assert len({numa_node(node, uuid) for uuid in taken[name]}) == 1
        else:
            eventually(lambda name=name: node_cluster.why_pending(name))  # type: ignore[misc]
            assert not is_running(node, name)
        outcomes[fits] += 1
        if not fits or chance.random() < 0.4:
            leave(node_cluster, name, *chance.sample(sorted(taken), min(len(taken), 2)))
            for gone in {*taken} - {found["metadata"]["name"] for found in node_cluster.bound()}:
                del taken[gone]
    assert min(outcomes[True], outcomes[False]) > 0
    figure(
        f"single-numa-node: {outcomes[True]} sets that fit one NUMA node all admitted, {outcomes[False]} pods waited"
    )


def leave(cluster: GpuCluster, *names: str) -> None:
    """Delete pods, and return when they are gone and claim nothing."""
    for name in names:
        cluster.delete(name)
    eventually(lambda: not {*names} & {claim.name for claim in cluster.ledger("n0").claims}, within_seconds=30)
    eventually(lambda: not {*names} & {found["metadata"]["name"] for found in cluster.bound()}, within_seconds=30)


def numa_node(node: GpuNode, uuid: str) -> int | None:
    """Return the NUMA node that a GPU is near."""
    return node.machine.topology.gpus[node.machine.uuids.index(uuid)].numa_node


def free_by_numa_node(node: GpuNode, taken: dict[str, set[str]]) -> Counter[int | None]:
    """Return how many GPUs nobody has, for each NUMA node."""
    used = {uuid for gpus in taken.values() for uuid in gpus}
    free = Counter({gpu.numa_node: 0 for gpu in node.machine.topology.gpus})
    free.update(numa_node(node, uuid) for uuid in node.machine.uuids if uuid not in used)
    return free
