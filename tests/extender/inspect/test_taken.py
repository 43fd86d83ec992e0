"""Where too few GPUs are free, `why` tells which pods have the others, and which GPU is unusable and why."""

from __future__ import annotations

from extender.inspect import inspection
from extender.inspect.taken import fault_of
from extender.inspect.why import why
from tests.extender.builders import at, cluster, gpus, node, pod, running
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, NodeGpuStatus

G = gpus("n1", *range(8))


def said(*pods_on: int, sick: int = 0) -> str:
    """Ask why a pod of eight waits where pods of these sizes run and the last GPUs are sick."""
    ill = tuple(GpuStatus(gpu, healthy=False, reasons=("xid 79",)) for gpu in (G[8 - sick :] if sick else ()))
    holders, start = [], 0
    for number, size in enumerate(pods_on):
        holders.append(running(f"p{number}", "n1", *G[start : start + size]))
        start += size
    state = cluster(node("n1", status=encode_status(NodeGpuStatus(1, ill))), *holders, pod("asks", 8))
    told = why(state, "ml", "asks", at(), limit=1)
    assert told is not None
    return told.nodes[0].figures.partition("; ")[2]


def test_the_pods_that_have_most_are_named_first() -> None:
    """Three of them, since a node is a line of a table; the others are counted."""
    assert said(1, 4) == "ml/p1 has 4, ml/p0 has 1"
    assert said(1, 1, 1, 1, 2) == "ml/p4 has 2, ml/p0 has 1, ml/p1 has 1, others have 2"


def test_each_gpu_that_nobody_may_have_says_why() -> None:
    """As it is counted by nvidia-smi; of many the first three."""
    assert said(2, sick=1) == "ml/p0 has 2, GPU 7: xid 79"
    assert said(sick=5) == "GPU 3: xid 79, GPU 4: xid 79, GPU 5: xid 79, 2 more are unusable"


def test_a_list_of_nodes_says_which_gpus_are_unusable_and_why() -> None:
    """Equal reasons once; of a closed node why it is closed, and nothing of its GPUs."""
    ill = (GpuStatus(G[2], False, ("xid 79",)), GpuStatus(G[3], False, ("xid 79",)), GpuStatus(G[5], False, ("lost",)))
    status = encode_status(NodeGpuStatus(1, ill))
    state = cluster(node("n1", status=status), node("n2", topology=None), node("n3"))
    told = {each.name: fault_of(each) for each in inspection.nodes(state, ("n1", "n2", "n3"), at())}
    assert told == {"n1": "GPU 2,3: xid 79; GPU 5: lost", "n2": "no GPU topology is published", "n3": ""}
