"""With a real runtime tests look inside the process: what was injected is there."""

import random
from collections.abc import Callable

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.inside import seen_inside
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import wilful
from tests.cluster.nodes.pods import bound_pod, is_running, pod, submit, wait_running
from tests.cluster.nodes.runtime import Runtime
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME

MACHINES = {"n0": "hgx_h100", "n1": "two_islands", "n2": "dgx1v"}


def test_process_sees_the_gpus_that_it_was_given(nodes: Nodes, real_runtime: Runtime) -> None:
    """Environment and device nodes inside the container are those of the devices that the kubelet accounts for."""
    node = nodes.one("hgx_h100", real_runtime)
    wilful(node)
    submit(node, bound_pod(node, "two", 2))
    eventually(lambda: is_running(node, "two"), within_seconds=60)
    view = seen_inside(node, "two")
    gpus = node.held()["two", "main"]
    assert set(view.env["NVIDIA_VISIBLE_DEVICES"].split(",")) == gpus
    assert view.devices == {f"/dev/nvidia{node.machine.uuids.index(uuid)}" for uuid in gpus}


def test_plan_arrives_inside_the_process(
    node_cluster: GpuCluster,
    nodes: Nodes,
    real_runtime: Runtime,
    rounds: Callable[[int, int], int],
    figure: Callable[[str], None],
) -> None:
    """What the scheduler chose is what the process in the container finds, pod after pod, on three nodes."""
    by_name = {node.name: node for node in nodes.start(MACHINES, real_runtime)}
    for node in by_name.values():
        enforcing(node)
    chance, pods = random.Random(0), rounds(12, 108)
    for wave in range(pods // 6):
        names = [f"w{wave}-{number}" for number in range(6)]
        node_cluster.submit(*(pod(name, chance.choice((1, 2, 2, 4)), schedulerName=SCHEDULER_NAME) for name in names))
        wait_running(node_cluster, *names, within_seconds=180)
        for name in names:
            node = by_name[node_cluster.node_of(name) or ""]
            assert gpus_inside(node, name) == set(node_cluster.placement(name).containers["main"])
        for name in names:
            node_cluster.delete(name)
    figure(
        f"{pods} pods with real containers on {len(MACHINES)} nodes: environment and device nodes inside equal the plan"
    )


def test_containers_of_one_pod_find_each_its_own(node_cluster: GpuCluster, nodes: Nodes, real_runtime: Runtime) -> None:
    """Of equal size or not, no process finds a GPU of the container beside it."""
    node = nodes.one("dgx1v", real_runtime)
    enforcing(node)
    shapes = {"equal": (2, 2), "unequal": (1, 2)}
    node_cluster.submit(*(pod(name, *shape, schedulerName=SCHEDULER_NAME) for name, shape in shapes.items()))
    wait_running(node_cluster, *shapes)
    for name, shape in shapes.items():
        planned = node_cluster.placement(name).containers
        found = {container: gpus_inside(node, name, container) for container in ("main", "c1")}
        assert found == {container: set(gpus) for container, gpus in planned.items()}
        assert tuple(map(len, found.values())) == shape
        assert not found["main"] & found["c1"]


def gpus_inside(node: GpuNode, name: str, container: str = "main") -> set[str]:
    """Return the GPUs that a process finds, if environment and device nodes agree."""
    view = seen_inside(node, name, container)
    gpus = set(view.env["NVIDIA_VISIBLE_DEVICES"].split(","))
    assert view.devices == {f"/dev/nvidia{node.machine.uuids.index(uuid)}" for uuid in gpus}
    return gpus
