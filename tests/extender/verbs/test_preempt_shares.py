"""preempt among those who share GPUs, against an oracle that counts for itself and looks at every set of victims."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random

import pytest

from extender.verbs.preempt import preempt
from tests.extender.builders import at, finish
from tests.extender.shares import SHARE_GIB
from tests.extender.verbs.shared_nodes import Guest, SharedNode


def fits(node: SharedNode, gone: tuple[Guest, ...]) -> bool:
    """Whether the pod has a place when these are gone: by counting what the others have of each GPU."""
    there: list[list[Guest]] = [[] for _ in range(node.size)]
    for guest in node.guests:
        if guest not in gone:
            there[guest.gpu].append(guest)
    if node.asked_gpus:
        return sum(not on for on in there) >= node.asked_gpus
    shared = sum(any(guest.gib for guest in on) for on in there)
    return any(_takes(node, on, node.beyond_gib if gpu == 0 else 0, shared) for gpu, on in enumerate(there))


def _takes(node: SharedNode, on: list[Guest], beyond_gib: int, shared: int) -> bool:
    if any(guest.gib is None for guest in on) or any(guest.sharing_class != node.asked_class for guest in on):
        return False
    is_open = bool(on) or shared < node.max_gpus
    return is_open and sum(guest.gib or 0 for guest in on) + beyond_gib + node.asked_gib <= SHARE_GIB


def cost(gone: tuple[Guest, ...]) -> tuple[int, int, int]:
    """Return the highest priority, what all add up to, and how many they are."""
    priorities = [guest.priority for guest in gone]
    return max(priorities), sum(priority + 2**31 for priority in priorities), len(gone)


def judge(seed: int) -> bool:
    """Hold preempt to the oracle on one random node; returns whether eviction helps there."""
    node = SharedNode.random(Random(seed))
    if fits(node, ()) or not node.evictable:
        return False
    sets = [
        gone
        for count in range(1, len(node.evictable) + 1)
        for gone in combinations(node.evictable, count)
        if fits(node, gone) and is_as_much(node, gone)
    ]
    state = node.state()
    found = finish(preempt(state, node.args(), at, budget_seconds=1e9)).victims.get("n1")
    needed = [gone for gone in sets if not any(set(other) < set(gone) for other in sets)]
    if not needed:
        assert found is None, f"seed {seed}: {found} does not help on {node}"
        return False
    assert found is not None, f"seed {seed}: somebody helps on {node}"
    chosen = tuple(guest for guest in node.evictable if guest.name in found.uids)
    assert chosen in needed, f"seed {seed}: {found.uids} on {node}"
    assert cost(chosen) == min(map(cost, needed)), f"seed {seed}: {found.uids} on {node}"
    return True


def is_as_much(node: SharedNode, gone: tuple[Guest, ...]) -> bool:
    """Whether as much is freed of each resource as was offered, or as the pod asks for: kube-scheduler counts these."""
    offered_gib, offered_gpus = _sums(node.evictable)
    gib, gpus = _sums(gone)
    wanted_gib = 0 if node.asked_gpus else node.asked_gib
    return gib >= min(wanted_gib, offered_gib) and gpus >= min(node.asked_gpus, offered_gpus)


def _sums(guests: tuple[Guest, ...]) -> tuple[int, int]:
    return sum(guest.gib or 0 for guest in guests), sum(guest.gib is None for guest in guests)


@pytest.mark.slow
def test_no_set_of_victims_is_cheaper() -> None:
    """Whether a share or whole GPUs are to get free; where none helps, none is named."""
    assert sum(judge(seed) for seed in range(150)) > 40


def test_somebody_stays_on_a_gpu_that_could_not_be_shared_anew() -> None:
    """The bound was lowered while two GPUs were shared: one that all have left is shared no more, so not all have to go."""
    here = tuple(Guest(f"p{i}", 0, gib, "", 0) for i, gib in enumerate((18, 21)))
    there = Guest("stays", 1, 31, "", 100)
    node = SharedNode(2, (*here, there), asked_gpus=0, asked_gib=11, asked_class="", beyond_gib=0, max_gpus=1)
    found = finish(preempt(node.state(), node.args(), at, budget_seconds=1e9)).victims["n1"]
    assert list(found.uids) == ["p0"]


@pytest.mark.slow
def test_no_set_of_victims_is_cheaper_on_a_thousand_shared_nodes(rounds: Callable[[int, int], int]) -> None:
    """The same, of 1,000."""
    nodes = rounds(1_000, 10_000)
    assert sum(judge(seed) for seed in range(1_000, 1_000 + nodes)) > nodes / 4
