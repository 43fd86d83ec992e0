"""Which pods come to a node, where they choose among models of GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.value.coming import PodsToCome
from topology.value.fragmentation import PodKind

HALF = PodKind(1, gpu_milli=500, cpu_milli=4_000)


def test_pods_that_may_not_use_a_model_do_not_come_to_its_nodes() -> None:
    """One kind wants H100, the other does not care."""
    choosy = PodKind(1, models=("H100",))
    assert PodsToCome([(choosy, 0.5), (HALF, 0.5)], {"H100": 8, "T4": 8}).kinds_at("T4", 0) == [(HALF, 1.0)]
    assert PodsToCome([(choosy, 1.0)], {"H100": 8, "T4": 8}).kinds_at("T4", 0) == []


def test_a_kind_comes_to_a_node_the_more_often_the_fewer_gpus_will_do_for_it() -> None:
    """Three times as often if it may use a third of the GPUs, however often the models are named."""
    choosy = PodKind(1, models=("H100", "H100", "not there"))
    assert PodsToCome([(choosy, 0.5), (HALF, 0.5)], {"H100": 4, "T4": 8}).kinds_at("H100", 0) == [
        (choosy, 0.75),
        (HALF, 0.25),
    ]


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), st.integers(1, 6_000))
def test_where_no_pod_names_a_model_all_nodes_meet_the_same(weights: list[float], gpus: int) -> None:
    """The shares stay what they are."""
    kinds = [(PodKind(1, gpu_milli=100 + i), weight / sum(weights)) for i, weight in enumerate(weights)]
    found = PodsToCome(kinds, {"H100": gpus, "T4": 8}).kinds_at("T4", 0)
    assert [kind for kind, _ in found] == [kind for kind, _ in kinds]
    assert [share for _, share in found] == pytest.approx([share for _, share in kinds])
