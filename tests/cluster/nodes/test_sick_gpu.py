"""A GPU falls sick under a pod, on a real kubelet: node and pod are told by the real programs, and the pod goes on."""

import time
from collections import deque
from collections.abc import Callable
from itertools import count

from extender.inspect.inspection import NodeDetail
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod, submit, wait_running
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.status_codec import decode_status


def test_node_and_pod_are_told_of_a_gpu_that_falls_sick(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """From the driver's critical error to both events; the way back is told on the node."""
    node = nodes.one("hgx_h100")
    agent = enforcing(node)
    submit(node, pod("four", 4, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "four")
    held = node_cluster.placement("four").containers["main"]
    sick = node.machine.uuids.index(held[0])

    began = time.monotonic()
    node.machine.xid(gpu=sick, number=74)
    [on_node] = eventually(lambda: node_cluster.events("GPUQuarantined"))
    [on_pod] = eventually(lambda: node_cluster.events("GPUSick"))
    figure(f"node and pod heard of a sick GPU {time.monotonic() - began:.1f} s after its critical error")
    assert on_node["involvedObject"]["kind"] == "Node"
    assert on_node["message"].startswith(f"GPU {sick} (GPU-")
    assert "takes no new pods: xid 74. Next: it opens by itself" in on_node["message"]
    assert on_pod["involvedObject"]["name"] == "four"
    assert f"GPU {sick} (GPU-" in on_pod["message"]
    [back] = eventually(lambda: node_cluster.events("GPUProbation"))
    assert back["type"] == "Normal"
    assert node_cluster.is_running("four")
    assert 'gputopo_agent_health_changes_total{state="probation"} 1.0' in agent.metrics()


def shown(cluster: GpuCluster, node: str) -> NodeDetail:
    """Return what the extender shows of a node."""
    _, text = cluster.extender.read(f"/v1/inspect/nodes/{node}")
    return NodeDetail.model_validate_json(text)


def test_no_new_pod_gets_a_gpu_that_is_sick_and_its_neighbours_go_on(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """Pods come and go; who comes once the critical error is known gets another GPU, until this one has come back by itself."""
    node = nodes.one("hgx_h100")
    enforcing(node, discovery={"interval": "1s", "xidRecovery": "15s"})
    names = (f"p{number}" for number in count())
    running = deque[str]()

    def one_more() -> set[str]:
        """Return the GPU of one more pod; six run at a time."""
        running.append(next(names))
        submit(node, pod(running[-1], 1, schedulerName=SCHEDULER_NAME))
        wait_running(node_cluster, running[-1])
        if len(running) > 6:
            node_cluster.delete(running.popleft())
        return set(node_cluster.placement(running[-1]).containers["main"])

    for _ in range(6):
        one_more()
    [taken, *_] = node_cluster.placement(running[0]).containers["main"]
    node.machine.xid(gpu=node.machine.uuids.index(taken), number=74)
    began = time.monotonic()
    eventually(lambda: any(gpu.uuid == taken and gpu.reasons for gpu in shown(node_cluster, node.name).gpus))
    figure(f"the extender knew of a sick GPU {time.monotonic() - began:.1f} s after its critical error")
    began, others = time.monotonic(), 0
    while others < 2 or time.monotonic() < began + 2.0:  # it opens after fifteen seconds here
        assert one_more() != {taken}
        others += 1
    figure(
        f"beside a sick GPU {others} pods got one of its neighbours within {time.monotonic() - began:.0f} s; it got none"
    )
    eventually(lambda: node_cluster.events("GPUProbation"))
    while len(running) > 1:
        node_cluster.delete(running.popleft())
    submit(node, pod("all", 7, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "all")
    assert taken in node_cluster.placement("all").containers["main"]


def test_a_dead_link_is_told_and_new_pods_go_around_it(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """The GPU stays open; four GPUs that are as fast as ever are those without it. A link that is up again waits."""
    node = nodes.one("hgx_h100")
    agent = enforcing(node)
    hurt = node.machine.uuids[2]
    submit(node, pod("before", 4, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "before")
    assert hurt in node_cluster.placement("before").containers["main"]
    node_cluster.delete("before")

    began = time.monotonic()
    node.machine.say("link 2 9 inactive")
    [told] = eventually(lambda: node_cluster.events("NVLinkDown"))
    figure(f"the node heard of a dead link {time.monotonic() - began:.1f} s after it went down")
    assert told["involvedObject"]["kind"] == "Node" and told["type"] == "Warning"
    assert told["message"].startswith("NVLink 9 of GPU 2 (GPU-")
    eventually(lambda: shown(node_cluster, node.name).link_faults)
    submit(node, pod("around", 4, schedulerName=SCHEDULER_NAME))
    wait_running(node_cluster, "around")
    assert hurt not in node_cluster.placement("around").containers["main"]
    assert 'gputopo_agent_nvlink_changes_total{state="down"} 1.0' in agent.metrics()

    node.machine.repair()
    [fault] = eventually(
        lambda: [each for each in decode_status(node.annotation(keys.STATUS) or "").link_faults if each.until]
    )
    assert (fault.gpu, fault.link) == (hurt, 9)
    assert fault.since is not None and fault.until is not None
    assert fault.until - fault.since >= 300
    assert node_cluster.events("NVLinkRecovered") == []
