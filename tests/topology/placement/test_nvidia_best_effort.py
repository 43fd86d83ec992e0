"""The stock device plugin's choice, against check values worked out on NVIDIA's own test fixture of a V100 cube mesh."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.formats.catalog import machine
from topology.placement.nvidia_best_effort import Outcome, best_effort, outcomes, pair_score


@pytest.mark.parametrize(
    ("free", "gpus", "chosen"),
    [
        (range(8), 1, {0}),
        (range(8), 2, {0, 3}),
        (range(8), 3, {0, 2, 3}),
        (range(8), 4, {0, 1, 2, 3}),
        (range(1, 8), 1, {1}),
        (range(1, 8), 2, {2, 3}),
        ((1, 2, 4, 7), 2, {1, 2}),
        ((0, 3, 4, 5, 6), 3, {4, 5, 6}),
    ],
)
def test_chooses_what_the_plugin_chooses(free: range, gpus: int, chosen: set[int]) -> None:
    """The published rule on the published machine, GPUs in index order."""
    assert set(best_effort(machine("dgx-1v"), tuple(free), gpus)) == chosen


def test_scores_pairs_as_the_plugin_does() -> None:
    """A double link under one switch is 250, a pair across sockets without links 10."""
    node = machine("dgx-1v")
    assert [pair_score(node, *pair) for pair in ((2, 3), (0, 3), (0, 1), (0, 5))] == [250, 230, 150, 10]


def test_links_to_a_switch_are_not_seen() -> None:
    """On an NVSwitch machine the plugin only sees PCIe."""
    assert pair_score(machine("hgx-h100"), 0, 1) < 100


def test_too_few_free_gpus_give_nothing() -> None:
    """The plugin returns no allocation then."""
    assert best_effort(machine("dgx-1v"), (0, 1), 3) == ()


def test_order_of_the_free_gpus_decides_between_equals() -> None:
    """The kubelet's order is random, so every GPU and both quads have their chance."""
    node = machine("dgx-1v")
    assert outcomes(node, 0b111, 1) == (Outcome(1, 1 / 3), Outcome(2, 1 / 3), Outcome(4, 1 / 3))
    assert {outcome.gpus for outcome in outcomes(node, 0xFF, 4)} == {0x0F, 0xF0}


@given(st.integers(1, 255), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_outcomes_are_a_distribution_over_sets_that_the_plugin_does_choose(free: int, gpus: int) -> None:
    """Of the right size, out of the free ones, adding up to one, and the same every time."""
    node = machine("dgx-1v")
    found = outcomes(node, free, gpus)
    assert bool(found) == (free.bit_count() >= gpus)
    assert all(outcome.gpus & ~free == 0 and outcome.gpus.bit_count() == gpus for outcome in found)
    assert not found or abs(sum(outcome.share for outcome in found) - 1) < 1e-9
    assert found == outcomes(node, free, gpus)


def test_few_free_gpus_are_worked_out_exactly() -> None:
    """A double link, and a single GPU elsewhere: there is nothing to throw dice for."""
    assert outcomes(machine("dgx-1v"), 0b01001001, 2) == (Outcome(0b1001, 1.0),)


def test_many_free_gpus_take_no_minutes() -> None:
    """The plugin itself tries every split and needs half a minute; here any set counts as possible then."""
    assert len(outcomes(machine("dgx-2"), 0xFFFF, 3)) > 50
