"""Every configuration of NVIDIA's device plugin: whole GPUs are planned as they are given, and nothing else is planned.

By hand, all 48, as a table: `pytest --long tests/cluster/nodes/test_nvidia_configurations.py`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cluster.api import Json
from tests.cluster.go_build import GoBuild
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import observing
from tests.cluster.nodes.configurations import DAILY, GPUS, SLICES_PER_GPU, Configuration, every
from tests.cluster.nodes.namespaces import NodeProcess
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import bound_pod, is_running, pod, refusal, submit, wait_running
from tests.cluster.objects import GPU
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.records import decode_observed
from topology.annotations.status_codec import decode_status
from topology.node.offers import ResourceOffer

pytestmark = pytest.mark.slow
HEAD = "shared | MIG strategy | renamed | fails above one | what it offers | pods that ask for whole GPUs"


@pytest.fixture
def nvidia_programs(built: Callable[[GoBuild], Path]) -> Path:
    """Return the folder of NVIDIA's programs."""
    return built(programs.NVIDIA)


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_each_configuration_serves_whole_gpus_or_says_why_not(
    node_cluster: GpuCluster,
    nodes: Nodes,
    nvidia_programs: Path,
    strategy: str,
    rounds: Callable[[int, int], int],
    figure: Callable[[str], None],
) -> None:
    """One after the other on one node, as an operator would change them; pods come through scheduler and extender."""
    tried = [each for each in every() if each.strategy == strategy and (rounds(0, 1) or each in DAILY)]
    node = machine(nodes, tried[0].cut)
    observing(node)
    if strategy == "none":
        figure(HEAD)
    for each in tried:
        plugin = start(node, nvidia_programs, each)
        judge = serves_slices if each.slices_as_gpus else serves if each.starts and each.whole else refuses
        figure(f"{each} | {offered(each)} | {judge(node_cluster, node, each)}")
        clear(node_cluster, node)
        stop(node, plugin)


def machine(nodes: Nodes, cut: Sequence[int]) -> GpuNode:
    """Start a DGX A100 with MIG on these GPUs, each cut into slices.

    No two GPUs are nearer to each other than others: the plugin crashes where a near pair and an empty slot score best.
    """
    node = nodes.one("dgx_a100")
    node.machine.say(f"path 0-{GPUS - 1} 0-{GPUS - 1} SYS")
    if cut:
        named = ",".join(map(str, cut))
        node.machine.say(f"gpu {named} mig on")
        for start_at in range(SLICES_PER_GPU):
            node.machine.say(f"slice {named} 1g.5gb {start_at}")
    return node


def start(node: GpuNode, folder: Path, configuration: Configuration) -> NodeProcess:
    """Start the plugin, and return when the agent has told what it offers, or when it has ended."""
    file, tools = node.state / "plugin.yaml", node.state / "mps"
    file.write_text(configuration.file())
    tools.mkdir(exist_ok=True)
    daemon = tools / "nvidia-cuda-mps-control"
    daemon.write_text("#!/bin/sh\ncat > /dev/null\necho 100.0\n")  # all that the plugin asks of it is an answer
    daemon.chmod(0o755)
    found = {"CONFIG_FILE": str(file), "MPS_ROOT": "/run/nvidia/mps", "PATH": f"{tools}:/usr/bin:/bin"}
    plugin = node.run("nvidia-device-plugin", folder / "nvidia-device-plugin", **found)
    if configuration.starts:
        eventually(lambda: told(node) == expected(node, configuration))
        eventually(lambda: node.allocatable(configuration.whole_as.resource) > 0 or configuration.strategy == "single")
    else:
        eventually(lambda: not plugin.is_running)
    return plugin


def serves(cluster: GpuCluster, node: GpuNode, configuration: Configuration) -> str:
    """See pods fill all GPUs that are offered whole, each with its own, and a larger pod refused."""
    sizes = (1, 2, configuration.whole - 3)
    names = [f"{configuration.slug}-{size}" for size in sizes]
    cluster.submit(*(pod(name, size, schedulerName=SCHEDULER_NAME) for name, size in zip(names, sizes, strict=True)))
    wait_running(cluster, *names)
    given = {name: devices_of(node, name) for name in names}
    assert [len(given[name]) for name in names] == [*sizes]
    whole = {uuid for number, uuid in enumerate(node.machine.uuids) if number not in configuration.cut}
    assert set().union(*given.values()) == whole, "each has GPUs of its own, and none is left"
    for name in names:
        eventually(lambda name=name: cluster.claims(node.name, name) == given[name])  # type: ignore[misc]
        eventually(lambda name=name: planned(cluster, name) == given[name])  # type: ignore[misc]
    if configuration.cut:
        larger = f"{configuration.slug}-{configuration.whole + 1}"
        cluster.submit(pod(larger, configuration.whole + 1, schedulerName=SCHEDULER_NAME))
        eventually(lambda: f"Insufficient {GPU}" in cluster.why_pending(larger))
        assert cluster.node_of(larger) is None
    return f"pods of {', '.join(map(str, sizes))} got their GPUs"


def serves_slices(cluster: GpuCluster, node: GpuNode, configuration: Configuration) -> str:
    """See pods that ask for GPUs get slices, each its own, and the record say which."""
    sizes = (1, 2, 5)
    names = [f"slices-{size}" for size in sizes]
    cluster.submit(*(pod(name, size, schedulerName=SCHEDULER_NAME) for name, size in zip(names, sizes, strict=True)))
    wait_running(cluster, *names)
    given = {name: devices_of(node, name) for name in names}
    assert [len(given[name]) for name in names] == [*sizes]
    assert len(set().union(*given.values())) == sum(sizes), "each has slices of its own"
    for name in names:
        eventually(lambda name=name: cluster.claims(node.name, name) == given[name])  # type: ignore[misc]
        eventually(lambda name=name: planned(cluster, name) == given[name])  # type: ignore[misc]
    return f"pods of {', '.join(map(str, sizes))} got slices"


def refuses(cluster: GpuCluster, node: GpuNode, configuration: Configuration) -> str:
    """See pods for whole GPUs refused with the reason, and whoever takes shared ones around us recorded."""
    if configuration.starts and configuration.strategy != "single":
        take_replicas(node, configuration)
    for size in (1, 2):
        name = f"{configuration.slug}-{size}"
        cluster.submit(pod(name, size, schedulerName=SCHEDULER_NAME))
        eventually(lambda name=name: configuration.refusal in cluster.why_pending(name))  # type: ignore[misc]
        assert cluster.node_of(name) is None
    return f"wait: {configuration.refusal}"


def take_replicas(node: GpuNode, configuration: Configuration) -> None:
    """Have pods take one and two replicas without us; the agent tells who has which, or the kubelet refuses the two."""
    resource = configuration.whole_as.resource
    submit(node, asking(node, "one", resource, 1))
    submit(node, asking(node, "two", resource, 2))
    eventually(lambda: is_running(node, "one"))
    if configuration.gives_two:
        eventually(lambda: is_running(node, "two"))
    else:
        eventually(lambda: "maximum request size for shared resources is 1" in refusal(node, "two"))
    eventually(lambda: sharers(node) == replicas(node) and replicas(node))


def asking(node: GpuNode, name: str, resource: str, count: int) -> Json:
    """Return a pod that no scheduler sees, and that asks for these devices."""
    wanted = bound_pod(node, name, 0)
    wanted["spec"]["containers"][0]["resources"] = {"limits": {resource: str(count)}}
    return wanted


def clear(cluster: GpuCluster, node: GpuNode) -> None:
    """Delete all pods, and return when kubelet, agent and ledger have forgotten them."""
    for each in cluster.api.list("/api/v1/namespaces/default/pods"):
        cluster.delete(each["metadata"]["name"])
    eventually(lambda: not cluster.api.list("/api/v1/namespaces/default/pods"))
    eventually(lambda: not node.holdings() and not cluster.ledger(node.name).claims)
    eventually(lambda: not decode_observed(node.annotation(keys.OBSERVED) or "").gpus)
    for event in cluster.api.list("/api/v1/namespaces/default/events"):
        cluster.api.delete(f"/api/v1/namespaces/default/events/{event['metadata']['name']}")


def stop(node: GpuNode, plugin: NodeProcess) -> None:
    """End the plugin, and return when the cluster has seen that nothing is offered any more."""
    if plugin.is_running:
        plugin.stop()
    eventually(lambda: all(int(count) == 0 for count in of_nvidia(node).values()))


def of_nvidia(node: GpuNode) -> dict[str, str]:
    """Return what the cluster believes the node has to give, by resource."""
    allocatable = node.object()["status"].get("allocatable", {})
    return {name: count for name, count in allocatable.items() if name.startswith("nvidia.com/")}


def told(node: GpuNode) -> list[tuple[ResourceOffer, ...] | None]:
    """Return how each GPU is offered, as the node's agent says; by index."""
    status = node.annotation(keys.STATUS)
    offers = {gpu.uuid: gpu.offers for gpu in decode_status(status).gpus} if status else {}
    return [offers.get(uuid) for uuid in node.machine.uuids]


def expected(node: GpuNode, configuration: Configuration) -> list[tuple[ResourceOffer, ...]]:
    """Return the same as it follows from the configuration."""
    numbers = range(len(node.machine.uuids))
    return [(configuration.cut_as if number in configuration.cut else configuration.whole_as,) for number in numbers]


def offered(configuration: Configuration) -> str:
    """Say it for the table."""
    if not configuration.starts:
        return "nothing: it does not start"
    whole, cut = GPUS - len(configuration.cut), len(configuration.cut)
    parts = [(whole, configuration.whole_as), (cut, configuration.cut_as)]
    return ", ".join(f"{count} GPUs {_how(offer)}" for count, offer in parts if count)


def _how(offer: ResourceOffer) -> str:
    return (
        f"{offer.form}{f' ×{offer.parts}' if offer.parts > 1 else ''} as {offer.resource.removeprefix('nvidia.com/')}"
    )


def devices_of(node: GpuNode, name: str) -> set[str]:
    """Return a pod's devices of the GPU resource, as the kubelet says."""
    return {device for each in node.holdings() if each.pod == name and each.resource == GPU for device in each.ids}


def planned(cluster: GpuCluster, name: str) -> set[str]:
    """Return the GPUs of a pod's record."""
    return {gpu for gpus in cluster.placement(name).containers.values() for gpu in gpus}


def replicas(node: GpuNode) -> dict[str, dict[str, int]]:
    """Return GPU → pod → how many replicas of it that pod has, as the kubelet says."""
    found: dict[str, dict[str, int]] = {}
    for each in node.holdings():
        for device in each.ids:
            gpu, _, number = device.partition("::")
            if number:
                of = found.setdefault(gpu, {})
                of[each.pod] = of.get(each.pod, 0) + 1
    return found


def sharers(node: GpuNode) -> dict[str, dict[str, int]]:
    """Return the same as the agent has published it."""
    shared = decode_observed(node.annotation(keys.OBSERVED) or "").shared
    return {gpu: {who.name: who.parts for who in of} for gpu, of in shared.items()}
