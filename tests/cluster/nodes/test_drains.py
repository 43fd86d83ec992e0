"""What others do to nodes: drains, reboots, another machine under an old name, and pods that another scheduler has bound."""

import re
import time
from collections.abc import Callable

import pytest

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.kubectl import kubectl
from tests.cluster.nodes.agents import AgentProcess, enforcing
from tests.cluster.nodes.kubelet import needs_a_newer_kubelet
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import bound_pod, is_running, pod, refusal, submit, wait_running
from tests.cluster.objects import NODES, PODS
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.codec import decode_topology

SOON_SECONDS = 15.0
"""For what takes two seconds on a quiet machine."""


def test_pods_that_others_have_bound_are_adopted_and_told(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """One by its own hand, one by another scheduler: within seconds the ledger names the GPUs that they hold."""
    node = nodes.one("hgx_h100")
    enforcing(node)
    submit(node, bound_pod(node, "by-hand", 2))
    node_cluster.submit(pod("by-another", 3, schedulerName="somebody-else"))
    target = {"metadata": {"name": "by-another"}, "target": {"kind": "Node", "name": node.name}}
    node_cluster.api.post(f"{PODS}/by-another/binding", target)
    began = time.monotonic()
    for name in ("by-hand", "by-another"):
        eventually(lambda: is_running(node, name))  # noqa: B023
        eventually(lambda: node_cluster.claims(node.name, name) == node.held()[name, "main"], SOON_SECONDS)  # noqa: B023
    figure(f"two pods that others had bound were in the ledger {time.monotonic() - began:.1f} s later")
    eventually(lambda: told(node_cluster, "GPUPlacementAdopted") == {"by-hand", "by-another"})
    assert node_cluster.extender.metric('ledger_repairs_total{kind="adopted"}') == 2


def test_drain_gives_the_gpus_back_and_tells_the_rest_of_the_group(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """`kubectl drain` evicts one of two members; the other one hears of it, and a new one comes when the node is back."""
    first, second = nodes.start({"n0": "hgx_h100", "n1": "hgx_h100"})
    for node in (first, second):
        enforcing(node)
    group = {keys.GROUP: "llama", keys.GROUP_SIZE: "2"}
    members = [pod(name, 8, annotations=group, schedulerName=SCHEDULER_NAME) for name in ("llama-0", "llama-1")]
    for member in members:
        member["metadata"]["labels"] = {"drain": "me"}
    node_cluster.submit(*members)
    wait_running(node_cluster, "llama-0", "llama-1")
    drained, stays = ("llama-0", "llama-1") if node_cluster.node_of("llama-0") == first.name else ("llama-1", "llama-0")
    began = time.monotonic()
    kubectl(first.plane, "drain", first.name, "--pod-selector=drain=me", "--force", "--timeout=60s")
    eventually(lambda: not node_cluster.ledger(first.name).claims, SOON_SECONDS)
    figure(f"{time.monotonic() - began:.1f} s after the start of a drain the GPUs were free")
    eventually(lambda: told(node_cluster, "GroupMemberEvicted") == {stays}, SOON_SECONDS)
    (event,) = node_cluster.events("GroupMemberEvicted")
    assert event["message"].startswith(f"{drained} of the same group has to leave {first.name}")
    node_cluster.submit(pod("llama-2", 8, annotations=group, schedulerName=SCHEDULER_NAME))
    eventually(lambda: node_cluster.why_pending("llama-2"))
    kubectl(first.plane, "uncordon", first.name)
    wait_running(node_cluster, "llama-2")
    assert node_cluster.node_of("llama-2") == first.name


@needs_a_newer_kubelet
def test_reboot_that_renumbers_the_gpus(node_cluster: GpuCluster, nodes: Nodes) -> None:
    """Claims are by UUID. The kubelet turns away who was there, as no plugin has come yet; then all GPUs can be had again."""
    node = nodes.one("hgx_h100")
    agent = enforcing(node)
    submit(node, pod("before", 3, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "before")
    node.power_off()
    node.machine.become(renumbered)
    back(node, agent)
    eventually(lambda: published(node) == node.machine.uuids)
    assert "UnexpectedAdmissionError" in eventually(lambda: refusal(node, "before"))
    node_cluster.submit(pod("next", 5, schedulerName=SCHEDULER_NAME), pod("last", 3, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "next", "last")
    for name in ("next", "last"):
        assert node.held()[name, "main"] == node_cluster.claims(node.name, name)


@pytest.mark.parametrize("object_", ["kept", "deleted"])
def test_other_machine_under_the_same_name(node_cluster: GpuCluster, nodes: Nodes, object_: str) -> None:
    """What was claimed of the old machine's GPUs binds none of the new one's, and in the end all of these can be had."""
    node = nodes.one("hgx_h100")
    agent = enforcing(node)
    submit(node, pod("old", 5, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "old")
    before = {*node.machine.uuids}
    node.power_off()
    node.forget_disk()
    if object_ == "deleted":
        node_cluster.api.delete(f"{NODES}/{node.name}")
        node_cluster.api.delete(f"/apis/storage.k8s.io/v1/csinodes/{node.name}")
    node.machine.become(replaced)
    back(node, agent)
    assert before.isdisjoint(node.machine.uuids)
    submit(node, pod("new", 3, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "new")
    held = node.held()
    assert before.isdisjoint(held["new", "main"])
    eventually(lambda: node_cluster.claims(node.name, "new") == node.held()["new", "main"], SOON_SECONDS)
    old = node_cluster.claims(node.name, "old") - before  # whoever stays on paper stands in nobody's way
    assert old == node.held().get(("old", "main"), set())
    for name in ("old", "new"):
        node_cluster.delete(name)
    submit(node, pod("whole", 8, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "whole")
    assert node_cluster.claims(node.name, "whole") == {*node.machine.uuids}


def told(cluster: GpuCluster, reason: str) -> set[str]:
    """Return the pods that have an event of this reason."""
    return {event["involvedObject"]["name"] for event in cluster.events(reason)}


def published(node: GpuNode) -> list[str]:
    """Return the GPUs by index, as the node's agent says."""
    return [gpu.uuid for gpu in decode_topology(node.annotation(keys.TOPOLOGY) or "").gpus]


def back(node: GpuNode, agent: AgentProcess) -> None:
    """Switch the node on again, and return when it takes pods."""
    node.start()
    eventually(lambda: not agent.is_seen_ready())
    agent.run()
    node.wait_ready()
    eventually(lambda: node.offered() == {*node.machine.uuids})
    node.wait_allocatable(len(node.machine.uuids))


def renumbered(description: str) -> str:
    """Count the GPUs the other way round."""
    found = re.search(r"^gpu 0-7 uuid (GPU-.*)%$", description, re.MULTILINE)
    assert found
    lines = "\n".join(f"gpu {index} uuid {found[1]}{7 - index}" for index in range(8))
    return description.replace(found[0], lines)


def replaced(description: str) -> str:
    """Give all GPUs other UUIDs."""
    return re.sub(r"(uuid GPU-)[0-9a-f]{8}", r"\g<1>0dd0e000", description)
