"""When shared GPUs come back, and what free ones are worth until then."""

from __future__ import annotations

from itertools import permutations

import pytest

from topology.value.coming_back import MANY_PODS, return_probability, sharing_penalty


def value(free: int) -> float:
    """Two free GPUs are worth more than twice one."""
    return (0.0, 1.0, 5.0, 6.0, 16.0)[free.bit_count()]


@pytest.mark.parametrize("pods", range(1, MANY_PODS + 1))
def test_a_gpu_comes_back_when_the_last_of_its_pods_ends(pods: int) -> None:
    """All orders in which they end are as likely; in so many of them a pod is the last one."""
    orders = [*permutations(range(pods))]
    assert return_probability(pods) == pytest.approx(sum(order[-1] == 0 for order in orders) / len(orders))


def test_many_pods_are_alike() -> None:
    """So that there are few kinds of node."""
    assert return_probability(MANY_PODS) == return_probability(MANY_PODS + 1) == return_probability(100)


def test_nothing_is_held_back_where_each_gpu_has_one_pod() -> None:
    """That is what the value of free GPUs takes for granted; so it is where the last share has ended."""
    assert sharing_penalty(value, 0b0001, [(1, 1), (2, 1), (3, 0)]) == 0


def test_what_comes_back_late_counts_by_what_it_would_bring() -> None:
    """Beside one free GPU a second one is worth 4, and a third one beside two 1."""
    assert sharing_penalty(value, 0b0001, [(1, 2)]) == pytest.approx(4 / 2)
    assert sharing_penalty(value, 0b0011, [(2, 2)]) == pytest.approx(1 / 2)
    assert sharing_penalty(value, 0b0001, [(1, 2), (2, 3)]) == pytest.approx(4 / 2 + 4 * 2 / 3)


def test_a_gpu_that_comes_back_does_no_harm() -> None:
    """One free GPU may be worth less than none, where that tells of small pods beside it."""
    assert sharing_penalty(lambda free: -free.bit_count(), 0b0001, [(1, 2)]) == 0
