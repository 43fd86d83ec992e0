"""FGD's measure and scores against a plain reading of its definition, and the published results."""

from __future__ import annotations

import math
from itertools import permutations
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.placement.baselines.fgd import Fgd
from benchmarks.placement.cluster import Allotment, Cluster, ServerSpec
from benchmarks.placement.fidelity import PUBLISHED_NAMES, published
from benchmarks.placement.fragmentation import FragmentationMeasure, typical_pods
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.rows import mean
from benchmarks.placement.scenarios.inflation import Inflation
from benchmarks.placement.traces.openb import OpenbTrace
from topology.node.model import Gpu, NodeTopology

PODS = [
    *[PodSize(0, cpu_milli=4000)] * 2,
    *[PodSize(1, 300, cpu_milli=4000)] * 5,
    *[PodSize(1, 650, cpu_milli=8000, models=("A", "B"))] * 3,
    *[PodSize(1, cpu_milli=6000)] * 6,
    *[PodSize(2, cpu_milli=16000, models=("B",))] * 2,
]


def fragments(cpu_milli: int, gpu_milli: list[int], model: str) -> float:
    """Return FGD's measure of one node, read off its definition."""
    total = 0.0
    for pod, share in typical_pods(PODS):
        hosts = (
            pod.gpus > 0
            and sum(left >= pod.gpu_milli for left in gpu_milli) >= pod.gpus
            and cpu_milli >= pod.cpu_milli
            and (not pod.models or model in pod.models)
        )
        too_small = sum(left for left in gpu_milli if left < pod.gpu_milli)
        total += share * (too_small if hosts else sum(gpu_milli))
    return total


states = st.tuples(
    st.integers(0, 40).map(lambda cores: cores * 1000),
    st.lists(st.sampled_from([0, 350, 700, 1000]), min_size=4, max_size=4),
    st.sampled_from(["A", "B", "C"]),
)


def test_typical_pods_cover_most_of_the_workload() -> None:
    """The most frequent come first, and their shares add up to one."""
    found = typical_pods(PODS)
    assert found[0][0] == PodSize(1, cpu_milli=6000)
    assert math.isclose(sum(share for _, share in found), 1.0)


@given(state=states)
def test_the_measure_is_what_its_definition_says(state: tuple[int, list[int], str]) -> None:
    """The arrays give the same number as a loop over typical pods and GPUs."""
    cpu_milli, gpu_milli, model = state
    measure = FragmentationMeasure(typical_pods(PODS), ["A", "B", "C"])
    found = measure.of(np.array([cpu_milli]), np.array([gpu_milli]), np.array(["ABC".index(model)]))
    assert math.isclose(found[0], fragments(cpu_milli, gpu_milli, model), abs_tol=1e-6)


def one_node(cpu_milli: int, gpu_milli: list[int], model: str) -> Cluster:
    """Return a cluster of one node in this state."""
    gpus = tuple(Gpu(index, str(index), model) for index in range(len(gpu_milli)))
    cluster = Cluster([ServerSpec("n", NodeTopology(gpus), cpu_milli, 1000, model)])
    for position, left in enumerate(gpu_milli):
        if left < 1000:
            cluster.take(Allotment(0, (position,), PodSize(1, 1000 - left)))
    return cluster


def expected_score(cpu_milli: int, gpu_milli: list[int], model: str, pod: PodSize) -> int | None:
    """Return FGD's score of one node for a pod, read off its definition; `None` where it does not fit."""
    before = fragments(cpu_milli, gpu_milli, model)
    positions = [position for position, left in enumerate(gpu_milli) if left >= pod.gpu_milli]
    if len(positions) < pod.gpus or cpu_milli < pod.cpu_milli:
        return None
    choices = [[position] for position in positions] if pod.shares else [positions[: pod.gpus]]
    scores = []
    for chosen in choices:
        after = [left - pod.gpu_milli if position in chosen else left for position, left in enumerate(gpu_milli)]
        gain = (before - fragments(cpu_milli - pod.cpu_milli, after, model)) / 1000
        scores.append(100 / (1 + math.exp(-gain)))
    # A number at the very edge of two may fall on either side.
    return int(max(scores) + 1e-9)


@settings(max_examples=60)
@given(state=states)
def test_scores_are_what_the_definition_says(state: tuple[int, list[int], str]) -> None:
    """For each kind of pod the best GPU's score, cut to a whole number."""
    policy = Fgd(one_node(*state), Random(0), PODS)
    for pod in dict.fromkeys(PODS):
        expected = expected_score(*state, pod)
        assert policy.scores(pod)[0] == pytest.approx(-1 if expected is None else expected, abs=1e-9)


WORKLOADS = ("cpu100", "default", "gpushare100", "gpushare40", "gpuspec33", "multigpu20", "multigpu50")

TIES = {
    "cpu100": {"gpu-clustering", "gpu-packing"},
    "gpushare100": {"gpu-clustering", "gpu-packing"},
    "gpushare40": {"gpu-clustering", "gpu-packing"},
    "multigpu50": {"gpu-clustering", "best-fit"},
}
"""Published less than a tenth of a point apart, less than seeds tell; on cpu100 they come out the other way round."""


@pytest.mark.slow
@pytest.mark.parametrize("policy", PUBLISHED_NAMES.values())
def test_published_results_are_met(policy: str, shared_dir: Path) -> None:
    """On `default`, at 130 % asked for, the mean of three seeds is within half a point of the published mean of ten."""
    folder = shared_dir / "traces" / "openb"
    found = allocated_pct(folder, "default", policy, seeds=3)
    assert found == pytest.approx(published_pct(folder, "default", policy), abs=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_published_results_and_their_order_are_met_on_every_workload(
    workload: str, shared_dir: Path, pytestconfig: pytest.Config
) -> None:
    """Of all pairs of policies the one that is published ahead is ahead here, but for those that are level."""
    if not pytestconfig.getoption("--long"):
        pytest.skip("twenty-four runs take minutes: only with --long")
    folder = shared_dir / "traces" / "openb"
    wanted = {policy: published_pct(folder, workload, policy) for policy in PUBLISHED_NAMES.values()}
    found = {policy: allocated_pct(folder, workload, policy, seeds=4) for policy in wanted}
    assert found == pytest.approx(wanted, abs=0.5)
    told_apart = [(a, b) for a, b in permutations(found, 2) if wanted[a] < wanted[b] and {a, b} != TIES.get(workload)]
    assert all(found[a] < found[b] for a, b in told_apart)


def allocated_pct(folder: Path, workload: str, policy: str, seeds: int) -> float:
    scenario = Inflation(OpenbTrace(folder))
    rows = [row for seed in range(42, 42 + seeds) for row in scenario.run(workload, policy, seed)]
    return mean(row.value for row in rows if row.metric == "allocation_pct" and row.x == 130.0)


def published_pct(folder: Path, workload: str, policy: str) -> float:
    return mean(published(folder)[workload, policy].values())
