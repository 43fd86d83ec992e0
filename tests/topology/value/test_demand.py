"""The mix of pods to come, learnt from those that came."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.value.demand import (
    DRIFT,
    PRIOR_PODS,
    REMEMBERED_KINDS,
    REMEMBERED_PODS,
    TYPICAL_KINDS,
    TYPICAL_SHARE,
    Demand,
    drift,
    in_levels,
)
from topology.value.fragmentation import PodKind

PRIOR = ((1, 0.5), (8, 0.5))


def seen(*sizes: int) -> Demand:
    demand = Demand(PRIOR)
    for size in sizes:
        demand.saw(PodKind(size))
    return demand


def test_before_any_pod_the_prior_is_all_there_is() -> None:
    """And no kind is typical."""
    assert seen().mix() == (PRIOR, [])


def test_pods_outweigh_the_prior_in_time() -> None:
    """As many pods as the prior counts for make it half."""
    sizes, _ = seen(*[2] * int(PRIOR_PODS)).mix()
    assert dict(sizes) == {1: 0.25, 2: 0.5, 8: 0.25}


def test_rare_kinds_are_not_typical() -> None:
    """Ninety-six pods of one GPU, four of eight."""
    _, typical = seen(*[1] * 96, *[8] * 4).mix()
    assert typical == [(PodKind(1), 1.0)]


def test_pods_without_gpus_are_typical_too_but_of_no_size() -> None:
    """They use up CPU; no free GPU is kept for them."""
    sizes, typical = seen(*[0] * 100).mix()
    assert sizes == PRIOR
    assert typical == [(PodKind(0), 1.0)]


def test_a_new_mix_is_due_when_half_as_many_pods_again_have_come() -> None:
    """So a year of pods costs a few dozen looks."""
    demand = seen(*[1] * 100)
    assert demand.is_news()
    demand.mix()
    for _ in range(50):
        demand.saw(PodKind(1))
    assert not demand.is_news()
    demand.saw(PodKind(1))
    assert demand.is_news()


def test_pods_that_run_longer_count_for_more() -> None:
    """As many of eight GPUs come as of one and stay ten times as long: ten to one, less what few runs leave in doubt."""
    demand, single, eight = Demand(PRIOR), PodKind(1), PodKind(8)
    for number in range(400):
        for kind in (single, eight):
            demand.saw(kind)
            demand.started(kind)
        demand.ended(single)
        if number >= 9:
            demand.ended(eight)
    sizes = dict(demand.mix()[0])
    assert 9 < sizes[8] / sizes[1] < 20


def test_how_long_pods_run_is_unknown_until_some_have() -> None:
    """Then only how often they come counts."""
    assert dict(seen(*[1] * 100, *[8] * 100).mix()[0]) == {1: 0.5, 8: 0.5}


@pytest.mark.slow
def test_old_pods_fade() -> None:
    """A cluster that turns from training to inference is believed after a while."""
    demand = seen(*[8] * REMEMBERED_PODS)
    for _ in range(3 * REMEMBERED_PODS):
        demand.saw(PodKind(1))
    assert dict(demand.mix()[0])[8] < 0.1


@given(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=200))
def test_shares_add_up_to_one(sizes: list[int]) -> None:
    """Of the sizes always, of the kinds once there are any."""
    found, typical = seen(*sizes).mix()
    assert abs(sum(share for _, share in found) - 1) < 1e-9
    assert not typical or abs(sum(share for _, share in typical) - 1) < 1e-9


def test_drift_is_how_much_of_the_mix_moved() -> None:
    """None, and all."""
    assert drift(PRIOR, PRIOR) == 0
    assert drift(((1, 1.0),), ((8, 1.0),)) == 1


def test_drift_counts_gpus_and_not_pods() -> None:
    """One pod in two hundred makes no difference, unless it asks for eight."""
    assert drift(((1, 0.995), (2, 0.005)), ((1, 1.0),)) < DRIFT
    assert drift(((1, 0.995), (8, 0.005)), ((1, 1.0),)) > DRIFT


@pytest.mark.slow
def test_a_tenant_with_ever_new_kinds_pushes_out_its_own() -> None:
    """What a decision costs stays bounded, the kinds of other namespaces stay, and all pods count by their GPUs."""
    demand, honest = Demand(PRIOR), [PodKind(2, cpu_milli=1_001 * cores) for cores in range(1, 21)]
    for number in range(9_000):
        demand.saw(PodKind(1, models=(f"glob-{number}?",)), "evil")
        if number < 200:
            demand.saw(honest[number % len(honest)], f"good-{number % 2}")
    sizes, typical = demand.mix()
    assert len(typical) <= TYPICAL_KINDS
    assert {kind for kind, _ in typical}.issuperset(honest)
    assert abs(dict(sizes)[2] - 200 / (9_200 + PRIOR_PODS)) < 1e-9
    assert abs(sum(share for _, share in typical) - 1) < 1e-9


def test_a_tenant_with_many_frequent_kinds_leaves_others_their_part_of_the_typical_ones() -> None:
    """Each of its kinds comes as often as each of theirs."""
    demand, honest = Demand(PRIOR), [PodKind(2, models=(f"h{number}",)) for number in range(10)]
    for number in range(150):
        for _ in range(20):
            demand.saw(PodKind(1, models=(f"a{number}",)), "evil")
    for kind in honest:
        for _ in range(20):
            demand.saw(kind, "good")
    typical = dict(demand.mix()[1])
    assert len(typical) == TYPICAL_KINDS
    assert typical.keys() >= {*honest}


def test_kinds_that_differ_by_a_millicore_are_few_in_the_end() -> None:
    """As an autoscaler of CPU requests makes them; together they are nearly all of the mix."""
    demand = Demand(PRIOR)
    for number in range(8_000):
        demand.saw(PodKind(1, cpu_milli=1_000 + number))
    typical = demand.mix()[1]
    in_few = [share for kind, share in typical if kind == in_levels(kind)]
    assert len(in_few) <= 4
    assert sum(in_few) > 0.9


kinds = st.builds(PodKind, st.integers(0, 8), cpu_milli=st.integers(0, 3), memory_gib=st.sampled_from((0, 5)))


@pytest.mark.slow
@given(st.lists(st.tuples(kinds, st.sampled_from(("", "a", "b"))), max_size=300))
def test_as_long_as_kinds_are_few_each_is_counted_for_itself(pods: list[tuple[PodKind, str]]) -> None:
    """Whoever owns them."""
    demand, counts, covered = Demand(PRIOR), Counter(kind for kind, _ in pods), 0
    for kind, owner in pods:
        demand.saw(kind, owner)
    expected = list[tuple[PodKind, int]]()
    for kind, count in sorted(counts.items(), key=lambda item: (-item[1], repr(item[0]))):
        if covered < TYPICAL_SHARE * len(pods):
            expected.append((kind, count))
            covered += count
    if len(expected) <= TYPICAL_KINDS:
        assert demand.mix()[1] == [(kind, count / covered) for kind, count in expected]


@pytest.mark.slow
def test_what_is_remembered_is_bounded_however_long_it_goes_on() -> None:
    """Also when old pods fade."""
    demand = Demand(PRIOR)
    for number in range(2 * REMEMBERED_PODS):
        demand.saw(PodKind(1 + number % 8, cpu_milli=number, models=(f"{number}",)), f"{number % 3}")
    assert len(demand._kinds) <= REMEMBERED_KINDS
    assert len(demand.mix()[1]) <= TYPICAL_KINDS
    assert abs(sum(share for _, share in demand.mix()[0]) - 1) < 1e-9
