"""The scorer that is made when it is first needed: its answers are those of the one that it makes."""

from __future__ import annotations

from itertools import combinations

import pytest

from agent.plugin.choice.best import Scorer
from agent.plugin.choice.lazy_scorer import LazyScorer
from topology.formats.catalog import MACHINES, machine

NODE = machine("dgx-1v")
G = [gpu.uuid for gpu in NODE.gpus]


@pytest.mark.parametrize("name", MACHINES)
def test_rings_are_the_same(name: str) -> None:
    """Of every machine's GPUs together, and of those that are neighbours by index."""
    node = machine(name)
    gpus = [gpu.uuid for gpu in node.gpus]
    lazy, eager = LazyScorer(node, lambda _: None), Scorer(node)
    for first, end in combinations(range(len(gpus) + 1), 2):
        assert lazy.ring(gpus[first:end]) == eager.ring(gpus[first:end])


def test_unknown_gpus_come_last_on_the_ring() -> None:
    """As with the scorer itself."""
    lazy = LazyScorer(NODE, lambda _: None)
    assert lazy.ring(["GPU-z", "GPU-y", G[3]]) == (G[3], "GPU-y", "GPU-z")
    assert lazy.ring([]) == ()


def test_it_says_once_that_it_has_been_made() -> None:
    """Then values are worth computing, and not before."""
    made: list[LazyScorer] = []
    lazy = LazyScorer(NODE, made.append)
    lazy.ring(G[:3])
    assert made == []
    lazy.best(G, [], 4)
    lazy.best(G, [], 2)
    assert made == [lazy]


def test_what_is_doubtful_counts_when_it_is_asked() -> None:
    """Whether it was said before the scorer was made, or after."""
    lazy = LazyScorer(NODE, lambda _: None)
    lazy.doubtful = frozenset({G[2]})
    assert set(lazy.best(G, [], 4) or ()) == set(G[4:])
    lazy.doubtful = frozenset({G[6]})
    assert set(lazy.best(G, [], 4) or ()) == set(G[:4])
