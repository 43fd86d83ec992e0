"""Pods with ResourceClaims hear of their sick GPUs, by the word of the agent or of the DRA driver."""

from __future__ import annotations

from msgspec.structs import replace

from extender.cluster.state import ClusterState
from tests.dra import allocated, gpu, read_slice, resource_slice
from tests.extender.builders import gpus, pod
from tests.extender.cluster.test_nodes_by_claim import OURS, made_for, published, reported, user
from tests.extender.features.sick_gpus.test_sick_gpus import EVICTABLE, SINCE, Api, Life
from tests.extender.virtual_time import in_virtual_time
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, NodeGpuStatus

UUIDS = gpus("n1", *range(8))
XID = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}


def holding() -> ClusterState:
    """Return a node on which pod `p`, which asks to be evicted, runs with the device `gpu-0` of its claim."""
    state = published(made_for("p", allocated(OURS, "n1", "gpu-0")), ledger=("p",))
    runs = pod("p", on="n1", placed=UUIDS[:1], phase="Running", terminated=False, wants=EVICTABLE)
    state.pods.changed(runs)
    return state


def fall_sick(state: ClusterState) -> None:
    known = state.views["n1"].node
    said = GpuStatus(UUIDS[0], healthy=False, reasons=("xid 79, needs a reset",), sick_since=SINCE)
    annotations = (known.metadata.annotations or {}) | {keys.STATUS: encode_status(NodeGpuStatus(1, (said,)))}
    metadata = replace(known.metadata, annotations=annotations, resource_version="9")
    state.nodes.changed(replace(known, metadata=metadata))


def taint(state: ClusterState, *minors: int, effect: str = "NoSchedule") -> None:
    word = XID | {"effect": effect}
    devices = [gpu(minor, uuid, *([word] if minor in minors else [])) for minor, uuid in enumerate(UUIDS)]
    state.claims.slices.changed(read_slice(resource_slice("n1", devices, generation=2)))


@in_virtual_time
async def test_a_pod_is_evicted_from_a_sick_device_that_the_agent_saw_it_with() -> None:
    """What was planned is no proof: before the agent names the pod, the pod is told, and stays."""
    state = holding()
    fall_sick(state)
    life = Life(state, Api(), may_evict=True)
    await life.rounds(20)
    assert (life.api.told("GPUSick"), life.api.evictions) == (["p"], [])
    assert "xid 79, needs a reset" in life.api.said("GPUSick", "p")
    reported(state, user("p", OURS, "gpu-0"))
    await life.rounds(5)
    assert life.api.evictions == ["p"]


@in_virtual_time
async def test_a_pod_hears_once_that_its_device_is_tainted_and_stays() -> None:
    """Kubernetes itself evicts for `NoExecute`; a driver also taints devices that nobody watches. Others hear nothing."""
    state = holding()
    life = Life(state, Api(), may_evict=True)
    taint(state, 5)
    await life.rounds(5)
    assert life.api.told("GPUSick") == []
    taint(state, 0)
    reported(state, user("p", OURS, "gpu-0"))
    await life.rounds(20)
    assert (life.api.told("GPUSick"), life.api.evictions) == (["p"], [])
    assert "tainted by its DRA driver: gpu.nvidia.com/xid=79:NoSchedule" in life.api.said("GPUSick", "p")


@in_virtual_time
async def test_a_taint_from_before_the_extender_started_is_told() -> None:
    """No time is known of it; the API server keeps one event of a case."""
    state = holding()
    taint(state, 0)
    life = Life(state, Api())
    await life.rounds(5)
    assert life.api.told("GPUSick") == ["p"]


@in_virtual_time
async def test_a_device_that_agent_and_driver_call_sick_is_one_case() -> None:
    """The agent knows since when."""
    state = holding()
    fall_sick(state)
    taint(state, 0)
    life = Life(state, Api())
    await life.rounds(5)
    assert life.api.told("GPUSick") == ["p"]
    assert "xid 79, needs a reset" in life.api.said("GPUSick", "p")


@in_virtual_time
async def test_a_taint_without_effect_is_no_news() -> None:
    state = holding()
    taint(state, 0, effect="None")
    life = Life(state, Api())
    await life.rounds(5)
    assert life.api.events == []
