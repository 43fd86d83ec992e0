"""What of the pods to come a node meets that shares GPUs, or has GPUs that only some pods can use."""

from __future__ import annotations

import pytest

from topology.node.model import Gpu, NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest
from topology.value import coming as module
from topology.value.coming import MAX_PROFILES, WANTED, PodsToCome, matched
from topology.value.fragmentation import DemandProfile, FreeCapacity, PodKind

TEN_GIB = PodKind(1, memory_gib=10)
WHOLE = PodKind(1)
LEFT = FreeCapacity((600, 300, 1000), 0)


def test_a_share_is_the_larger_part_of_a_smaller_gpu() -> None:
    """Rounded up, as what is left is rounded down."""
    coming = PodsToCome([(TEN_GIB, 1.0)], {"l4": 8, "h100": 8})
    for share_gib, milli in ((78, 129), (22, 455)):
        assert coming.at("l4", share_gib).value(LEFT) == DemandProfile([(PodKind(1, milli), 1.0)]).value(LEFT)


def test_a_share_that_a_gpu_is_too_small_for_does_not_come_there() -> None:
    """What does come is all that comes."""
    coming = PodsToCome([(TEN_GIB, 0.5), (WHOLE, 0.5)], {"t4": 8})
    assert coming.at("t4", 9).value(LEFT) == DemandProfile([(WHOLE, 1.0)]).value(LEFT)


def test_pods_that_name_models_come_to_these_by_pattern() -> None:
    """And the oftener, the fewer these are: per GPU 104 milli of the H100 are asked for, 42 of the T4, 62.5 of the mean GPU."""
    coming = PodsToCome([(PodKind(1, 500, models=("*h100*",)), 0.5), (WHOLE, 0.5)], {"NVIDIA H100": 4, "T4": 8})
    choosy = DemandProfile([(PodKind(1, 500), 0.75), (WHOLE, 0.25)], WANTED * (0.625 - 0.5))
    assert coming.at("NVIDIA H100", 78).value(LEFT) == pytest.approx(choosy.value(LEFT))
    others = DemandProfile([(WHOLE, 1.0)], WANTED * (0.4 - 0.5))
    assert coming.at("T4", 14).value(LEFT) == pytest.approx(others.value(LEFT))


def test_a_pod_that_may_have_any_gpu_leaves_alone_those_that_others_need() -> None:
    """Against what they score where nobody names a model, and neither is dearer."""
    gpus = {"H100": 8, "T4": 8}
    scores = {}
    for named in ((), ("h100",)):
        coming = PodsToCome([(PodKind(1, models=named), 0.5), (WHOLE, 0.5)], gpus)
        for model in gpus:
            node = NodeTopology(tuple(Gpu(index, f"GPU-{index}", model) for index in range(8)))
            capacity = FreeCapacity.of_whole(8, 255, 0)
            situation = Situation(TopologyClass(node), 255, capacity=capacity, to_come=coming.at(model, 0))
            found = decide(situation, GpuRequest.plain(1))
            assert isinstance(found, Placement)
            scores[model, bool(named)] = found.score
    assert scores["H100", True] < scores["H100", False]
    assert scores["T4", True] > scores["T4", False]


def test_a_pattern_that_matches_no_model_of_the_cluster_counts_as_none() -> None:
    """Whatever a tenant writes, it is no reason to leave a GPU alone; a node that has such GPUs is one, once it is there."""
    nowhere = PodKind(1, 500, models=("b200*", "gb?00"))
    coming = PodsToCome([(nowhere, 0.75), (WHOLE, 0.25)], {"H100": 4, "T4": 8})
    assert coming.at("T4", 14).value(LEFT) == PodsToCome([(WHOLE, 1.0)], {"H100": 4, "T4": 8}).at("T4", 14).value(LEFT)
    assert [kind for kind, _ in coming.kinds_at("B200", 180)] == [nowhere, WHOLE]


def test_patterns_are_matched_between_calls_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each kind and model; a call only looks them up."""
    kinds = [(PodKind(1, models=tuple(f"{kind}-{i}?" for i in range(52))), 1 / 64) for kind in range(64)]
    gpus = {f"model {number}": 8 for number in range(20)}
    assert sum(1 for _ in matched(kinds, gpus)) == 64 * 20

    def refused(*_: object) -> None:
        raise AssertionError("a call compares patterns")

    monkeypatch.setattr(module, "_matcher", refused)
    coming = PodsToCome(kinds, gpus)
    assert all(coming.kinds_at(model, 80) == [] for model in gpus)


def test_profiles_of_nodes_that_change_all_the_time_do_not_fill_the_memory() -> None:
    """Whatever models and sizes payloads name."""
    coming = PodsToCome([(WHOLE, 1.0)], {"T4": 8})
    profiles = [coming.at(f"model {number}", number) for number in range(2 * MAX_PROFILES)]
    assert len(coming._profiles) <= MAX_PROFILES
    assert coming.at(f"model {2 * MAX_PROFILES - 1}", 2 * MAX_PROFILES - 1) is profiles[-1]


def test_nothing_to_come_makes_nothing_dear() -> None:
    """As before any pod is seen, or where all that come ask for no GPU."""
    assert PodsToCome([(PodKind(0, cpu_milli=1_000), 1.0)], {"T4": 8}).at("T4", 14).value(LEFT) == DemandProfile(
        ()
    ).value(LEFT)
