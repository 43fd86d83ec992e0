"""Kubelets that align by NUMA nodes, with CPUs of their own to give: none of them refuses a pod that was planned there."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.cluster.api import Json
from tests.cluster.go_build import GoBuild
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import enforcing, observing, ready_plugin
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import nvidia
from tests.cluster.nodes.pods import pod, refusal, status, submit, wait_running
from tests.cluster.objects import PODS
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.records import decode_observed

CPUS = 16
"""Eight for each NUMA node, of which the system keeps one."""
BEGIN: list[list[tuple[tuple[int, ...], int]]] = [
    [((5,), 0)],
    [((8,), 4)],
    [((3, 3), 0)],
    [((3,), 0), ((3,), 0), ((2,), 0)],
]
"""Pods that come to an idle node, by the GPUs of their containers and the CPUs of each: some policy refuses one of them."""
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,1"}


@pytest.mark.parametrize(
    ("mode", "policy", "scope"),
    [
        ("enforce", "single-numa-node", "container"),
        ("enforce", "restricted", "pod"),
        ("enforce", "best-effort", "container"),
        ("observe", "single-numa-node", "pod"),
        ("observe", "restricted", "container"),
    ],
)
def test_no_pod_is_planned_and_then_refused(
    node_cluster: GpuCluster,
    nodes: Nodes,
    built: Callable[[GoBuild], Path],
    rounds: Callable[[int, int], int],
    figure: Callable[[str], None],
    mode: str,
    policy: str,
    scope: str,
) -> None:
    """Pods of all sizes, in one container or two, with whole CPUs or without: each runs as planned, or waits."""
    settings = {"topologyManagerPolicy": policy, "topologyManagerScope": scope, **STATIC}
    node = nodes.one("hgx_h100", settings=settings, cpus=CPUS)
    if mode == "observe":
        nvidia(node, built(programs.NVIDIA))
        observing(node)
    else:
        enforcing(node)
    eventually(lambda: knows(node, policy, scope) and node.annotation(keys.LEDGER))
    chance, outcomes = random.Random(f"{mode} {policy} {scope}"), Counter[str]()
    for number in range(len(BEGIN) + rounds(4, 60)):
        pods = BEGIN[number] if number < len(BEGIN) else [some_pod(chance) for _ in range(chance.randint(1, 3))]
        names = [f"p{number}{letter}" for letter in "abc"[: len(pods)]]
        for name, (gpus, cpus) in zip(names, pods, strict=True):
            submit(node, a_pod(name, gpus, cpus, exact=mode == "enforce"))
        for name in names:
            outcome = eventually(lambda name=name: outcome_of(node_cluster, node, name))  # type: ignore[misc]
            outcomes[outcome] += 1
            if outcome == "runs" and mode == "enforce":
                planned = node_cluster.placement(name).containers.values()
                assert held(node, name) == {gpu for gpus in planned for gpu in gpus}
        forget(node_cluster, node, 1.0 if number < len(BEGIN) else 0.6, chance)
    assert min(outcomes["runs"], outcomes["waits"]) > 0
    figure(f"{mode}, {policy}, {scope}: {outcomes['runs']} pods ran, {outcomes['waits']} waited, none was refused")


def test_gpus_and_whole_cpus_come_from_the_same_numa_node(node_cluster: GpuCluster, nodes: Nodes) -> None:
    """Two pods of two GPUs and six CPUs: the first NUMA node has GPUs for both, and CPUs for one."""
    settings = {"topologyManagerPolicy": "restricted", **STATIC}
    node = nodes.one("hgx_h100", settings=settings, cpus=CPUS)
    enforcing(node)
    eventually(lambda: knows(node, "restricted", "container"))
    for name, left in (("first", [1, 7]), ("second", [1, 1])):
        wanted = pod(name, 2, schedulerName=SCHEDULER_NAME)
        wanted["spec"]["containers"][0]["resources"]["limits"] |= {"cpu": "6", "memory": "16Mi"}
        submit(node, wanted)
        wait_running(node_cluster, name)
        eventually(lambda name=name, left=left: claims_are_seen(node, name) and free_cpus(node) == left)  # type: ignore[misc]
    numa_nodes = {gpu.uuid: gpu.numa_node for gpu in node.machine.topology.gpus}
    near = {name: {numa_nodes[gpu] for gpu in held(node, name)} for name in ("first", "second")}
    assert near == {"first": {0}, "second": {1}} == {name: cpus_near(node, name) for name in near}


def some_pod(chance: random.Random) -> tuple[tuple[int, ...], int]:
    """Return how many GPUs the containers of a pod ask for, and how many whole CPUs each."""
    gpus = chance.choice([(1,), (2,), (2,), (3,), (4,), (5,), (8,), (2, 2), (3, 1)])
    return gpus, chance.choice((0, 0, 0, 1, 2, 4))


def a_pod(name: str, gpus: tuple[int, ...], cpus: int, *, exact: bool) -> Json:
    """Return a pod that would rather fail than run with other GPUs, if it is `exact`."""
    annotations = {keys.DEVICE_MISMATCH: "refuse"} if exact else {}
    wanted = pod(name, *gpus, annotations=annotations, schedulerName=SCHEDULER_NAME)
    for container in wanted["spec"]["containers"] if cpus else ():
        container["resources"]["limits"] |= {"cpu": str(cpus), "memory": "16Mi"}
    return wanted


def outcome_of(cluster: GpuCluster, node: GpuNode, name: str) -> str:
    """Return what became of a pod, empty while it is not known; one that waits was told why, once at least."""
    if why := refusal(node, name):
        raise AssertionError(f"{name}: {why}; {cluster.pod(name)}")
    if status(node, name)["phase"] == "Running":
        return "runs"
    return "waits" if cluster.why_pending(name) and cluster.node_of(name) is None else ""


def forget(cluster: GpuCluster, node: GpuNode, share: float, chance: random.Random) -> None:
    """Delete the pods that wait and a share of the others, and return when nobody holds or claims what was theirs."""
    names = [each["metadata"]["name"] for each in cluster.api.list(PODS)]
    assert not any(refusal(node, name) for name in names)
    leaving = {name for name in names if chance.random() < share or cluster.node_of(name) is None}
    for name in leaving:
        cluster.delete(name)
    gone_from(leaving, lambda: (each["metadata"]["name"] for each in cluster.api.list(PODS)))
    gone_from(leaving, lambda: (pod for pod, _ in node.held()))
    gone_from(leaving, lambda: (claim.name for claim in cluster.ledger(node.name).claims))


def gone_from(leaving: set[str], listed: Callable[[], Iterable[str]]) -> None:
    """Return when none of these is listed."""
    eventually(lambda: leaving.isdisjoint(listed()), within_seconds=30)


def held(node: GpuNode, name: str) -> set[str]:
    """Return the GPUs of a pod, as the kubelet lists them."""
    return {gpu for (pod, _), gpus in node.held().items() if pod == name for gpu in gpus}


def claims_are_seen(node: GpuNode, name: str) -> bool:
    """Whether the agent has told that a pod holds its GPUs, and how many CPUs are left then."""
    text = node.annotation(keys.OBSERVED)
    return bool(text) and name in {holder.name for holder in decode_observed(text or "").gpus.values()}


def free_cpus(node: GpuNode) -> list[int]:
    """Return how many CPUs of each NUMA node the agent has told to be free."""
    plugin = ready_plugin(node)
    return [each.free for each in plugin.topology_manager.cpus] if plugin and plugin.topology_manager else []


def cpus_near(node: GpuNode, name: str) -> set[int]:
    """Return the NUMA nodes of the CPUs that a pod has for itself, as the kubelet has written down."""
    uid = node.plane.admin.get(f"{PODS}/{name}")["metadata"]["uid"]
    state = json.loads((node.state / "kubelet" / "cpu_manager_state").read_text())
    # The machine's CPUs are dealt out to its two NUMA nodes in turn.
    return {cpu % 2 for cpus in state["entries"][uid].values() for cpu in _cpus(cpus)}


def _cpus(text: str) -> Iterable[int]:
    """Read `2,4-6`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def knows(node: GpuNode, policy: str, scope: str) -> bool:
    """Whether the agent has told how the kubelet aligns, and that no CPU is taken."""
    plugin = ready_plugin(node)
    manager = plugin.topology_manager if plugin else None
    if manager is None:
        return False
    assert (manager.policy, manager.scope) == (policy, scope)
    return [(each.total, each.free) for each in manager.cpus] == [(8, 7), (8, 7)]
