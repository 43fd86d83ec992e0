"""The stock device plugin's choice, against check values worked out on NVIDIA's own test fixture of a V100 cube mesh."""

from __future__ import annotations

import pytest

from benchmarks.nvidia_best_effort import best_effort, pair_score
from topology.catalog import machine


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
