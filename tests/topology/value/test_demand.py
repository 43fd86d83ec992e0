"""The mix of pods to come, learnt from those that came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topology.value.demand import DRIFT, PRIOR_PODS, REMEMBERED_PODS, Demand, drift
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
