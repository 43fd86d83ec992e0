"""The trace of shared GPUs through the extender's own filter and bind, over HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from benchmarks.placement.cluster import ServerSpec
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.traces.openb import OpenbTrace
from benchmarks.served.objects import node_of, pod_of
from benchmarks.served.replay import ReplayTrace, course_of, serve, simulate
from benchmarks.shared import shared_folder
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.node.model import Gpu, NodeTopology
from topology.request.gpu_request import parse_pod
from topology.value.fragmentation import WHOLE_GPU_MILLI

TRACE = shared_folder() / "traces" / "openb"


def server(gpus: int, model: str = "T4") -> ServerSpec:
    topology = NodeTopology(tuple(Gpu(index, f"GPU-{index}", model) for index in range(gpus)))
    return ServerSpec("n", topology, 8_000 * gpus, 1_024 * gpus, model)


def course(servers: Sequence[ServerSpec], *pods: PodSize) -> ReplayTrace:
    return ReplayTrace(tuple(servers), pods, pods)


def test_a_thousandth_of_a_gpu_is_a_gib() -> None:
    """So that the trace's shares are asked for exactly, and its models too."""
    node = node_of("n1", server(2))
    gpus = decode_topology(node["metadata"]["annotations"][keys.TOPOLOGY]).gpus
    assert [gpu.memory_bytes for gpu in gpus] == [WHOLE_GPU_MILLI << 30] * 2
    asked = parse_pod(pod_of("p", PodSize(1, 620, 1_500, 512, ("V100M16", "T4")))).request
    assert (asked.gpus, asked.memory_gib, len(asked.models)) == (0, (620,), 2)


def test_nodes_are_spread_over_the_list_and_pods_without_gpus_left_out() -> None:
    """All policies meet the same."""
    if not TRACE.is_dir():
        pytest.skip("the published trace is not beside the checkout")
    found = course_of(OpenbTrace(TRACE), "default", 24, 42)
    assert len(found.servers) == 24 and len(Counter(one.model for one in found.servers)) > 3
    assert all(pod.gpus for pod in found.arrivals)


@pytest.mark.slow
@pytest.mark.waits
def test_the_extender_fills_gpus_as_counting_says() -> None:
    """Two halves and a whole one take two GPUs; a third of a GPU then finds no place, and nothing fails."""
    half, whole = PodSize(1, 500, 1_000, 10), PodSize(1, WHOLE_GPU_MILLI, 1_000, 10)
    asked = course([server(2)], half, whole, half, PodSize(1, 300, 1_000, 10))
    assert serve(asked) == simulate(asked, "gputopo", 1) == 100.0


@pytest.mark.slow
@pytest.mark.waits
@pytest.mark.parametrize("workload", ["gpushare100", "gpuspec33"])
def test_it_allocates_what_the_simulator_says_it_does(workload: str) -> None:
    """On few nodes one pod more or less is a point, so the bound is wide; the long form is `gputopo-bench served`."""
    if not TRACE.is_dir():
        pytest.skip("the published trace is not beside the checkout")
    found = course_of(OpenbTrace(TRACE), workload, 6, 42)
    assert abs(serve(found) - simulate(found, "gputopo", 42)) <= 2.0
