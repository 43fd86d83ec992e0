"""What strangers do to ledgers and pods is put right on the real API server, with the rights and policies of the chart."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.gpu_cluster import GpuCluster, uuids, wants
from tests.cluster.objects import NODES
from tests.cluster.polling import eventually
from topology.annotations import keys
from topology.annotations.records import decode_ledger
from topology.errors import PayloadError

NODE = SimulatedNode("v100", "dgx-1v")


def owners(cluster: GpuCluster) -> dict[str, str]:
    """Return GPU → pod as the ledger says, nothing of one that cannot be read."""
    annotations: dict[str, Any] = cluster.api.get(f"{NODES}/{NODE.name}")["metadata"]["annotations"]
    try:
        return {claim.gpu: claim.name for claim in decode_ledger(annotations[keys.LEDGER]).claims}
    except (KeyError, PayloadError):
        return {}


def told(cluster: GpuCluster, reason: str) -> list[str]:
    """Return the names that events of a reason are about."""
    return [event["involvedObject"]["name"] for event in cluster.events(reason)]


def placed(cluster: GpuCluster, *names: str, gpus: int = 2) -> dict[str, set[str]]:
    """Let these pods be placed on the node, and return which GPUs each has got."""
    cluster.submit(*(wants(name, gpus) for name in names))
    eventually(lambda: all(cluster.node_of(name) for name in names))
    return {name: set(cluster.placement(name).containers["main"]) for name in names}


def await_owners(cluster: GpuCluster, real: dict[str, set[str]]) -> None:
    """Return when the ledger and the records of these pods say that they have these GPUs."""
    claims = {gpu: name for name, gpus in real.items() for gpu in gpus}
    eventually(lambda: owners(cluster) == claims)
    eventually(lambda: {name: set(cluster.placement(name).containers["main"]) for name in real} == real)


@pytest.mark.parametrize("text", [None, '{"v":1,"gener', '{"v":1,"generation":1,"claims":[]}'])
def test_a_damaged_ledger_is_rebuilt(text: str | None, gpu_cluster: GpuCluster, figure: Callable[[str], None]) -> None:
    """C15: wiped, truncated or edited, it is as it was, and the node's events say that it was not for a while."""
    gpu_cluster.join(NODE)
    placed(gpu_cluster, "p", "q")
    before, began = owners(gpu_cluster), time.monotonic()
    gpu_cluster.annotate(NODE.name, keys.LEDGER, text)
    eventually(lambda: owners(gpu_cluster) == before)
    figure(
        f"a ledger that was {'wiped' if text is None else 'damaged'} was back after {time.monotonic() - began:.2f} s"
    )
    eventually(lambda: NODE.name in told(gpu_cluster, "GPULedgerRebuilt"))
    assert NODE.name in told(gpu_cluster, "GPULedgerBroken")


def test_a_stranger_is_adopted_and_the_node_stays_open(
    gpu_cluster: GpuCluster, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """C18: the node counts it at once, and the ledger names it within ten seconds of the agent's report."""
    gpu_cluster.join(NODE)
    gpu_cluster.bind_around_us("stranger", 4, NODE.name)
    ours = placed(gpu_cluster, "ours", gpus=2)["ours"]
    theirs = sorted(uuids(NODE, range(8)) - ours)[:4]
    gpu_cluster.report(NODE.name, 2, stranger=theirs, ours=ours)
    began = time.monotonic()
    eventually(lambda: list(owners(gpu_cluster).values()).count("stranger") == 4, within_seconds=goal(10))
    figure(f"a pod that was bound around us was in the ledger after {time.monotonic() - began:.2f} s")
    assert eventually(lambda: told(gpu_cluster, "GPUPlacementAdopted")) == ["stranger"]


def test_pods_whose_gpus_were_swapped_change_places(gpu_cluster: GpuCluster) -> None:
    """N9, N10: ledger and records follow the kubelet, as far as the policies let anybody write them."""
    gpu_cluster.join(NODE)
    planned = placed(gpu_cluster, "p", "q")
    swapped = {"p": planned["q"], "q": planned["p"]}
    for generation, real in ((2, swapped), (3, planned)):  # and back, for that is what the scheduler was told
        gpu_cluster.report(NODE.name, generation, **real)
        await_owners(gpu_cluster, real)
    eventually(lambda: told(gpu_cluster, "GPUPlacementCorrected") == ["p", "q"])
    eventually(lambda: gpu_cluster.extender.metric('ledger_repairs_total{kind="moved"}') == 4)


def test_the_api_server_honours_the_preconditions_of_a_binding(gpu_cluster: GpuCluster) -> None:
    """Tried as a dry run with the rights of the chart, on a pod that asks for GPUs."""
    gpu_cluster.join(NODE)
    placed(gpu_cluster, "p")
    eventually(lambda: gpu_cluster.extender.metric("preconditions_honoured") == 1)
    assert gpu_cluster.extender.read("/readyz") == (200, "ok")
