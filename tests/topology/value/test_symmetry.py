"""Which GPUs of a machine can stand in for which."""

from __future__ import annotations

from itertools import accumulate, combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.bandwidth.predict import Wiring, predict
from topology.formats.catalog import MACHINES, machine
from topology.node.model import Gpu, Link, NodeTopology
from topology.value.symmetry import Symmetry, lowest_first, subsets, ways


def symmetry_of(name: str) -> tuple[Wiring, Symmetry]:
    wiring = Wiring(machine(name))
    return wiring, Symmetry(wiring, [gpu.model for gpu in machine(name).gpus])


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("hgx-h100", 1),
        ("a100-pcie-8-pairs", 4),
        ("hgx-b200-gpu2-off-fabric", 3),
        ("dgx-1v", 8),
    ],
)
def test_gpus_that_can_be_swapped_are_one_group(name: str, groups: int) -> None:
    """A switch makes all alike, a bridge two, a mesh none."""
    assert len(symmetry_of(name)[1].groups) == groups


@pytest.mark.parametrize("name", [name for name in MACHINES if len(machine(name)) <= 8])
def test_sets_that_are_alike_are_predicted_alike(name: str) -> None:
    """All sets with one canonical form have one bandwidth."""
    wiring, symmetry = symmetry_of(name)
    found: dict[tuple[int, ...], set[float]] = {}
    for mask in range(1 << wiring.count):
        if mask.bit_count() > 1:
            alike = found.setdefault(symmetry.canonical(symmetry.counts(mask)), set())
            alike.add(predict(wiring, mask)[0].point)
    assert all(len(points) == 1 for points in found.values())


@pytest.mark.parametrize("name", [name for name in MACHINES if len(machine(name)) <= 8])
def test_sets_that_differ_are_at_least_as_many_as_is_said(name: str) -> None:
    """Every canonical form is one of them."""
    _, symmetry = symmetry_of(name)
    forms = {symmetry.canonical(symmetry.counts(mask)) for mask in range(1 << len(machine(name)))}
    assert len(forms) / 5 < symmetry.least_sets <= len(forms)


def test_the_halves_of_a_machine_are_alike() -> None:
    """A set on one socket and the same on the other have one canonical form."""
    _, symmetry = symmetry_of("dgx-1v")
    one, other = (symmetry.canonical(symmetry.counts(mask)) for mask in (0b00001111, 0b11110000))
    assert one == other


@given(st.lists(st.integers(0, 4), max_size=5), st.integers(0, 8))
def test_choices_are_all_there_and_each_once(available: list[int], size: int) -> None:
    """As many as `ways` counts, each of the size asked for and of what there is."""
    ends = list(accumulate(available))
    groups = [(1 << end) - (1 << end - count) for end, count in zip(ends, available, strict=True)]
    found = subsets(groups, size)
    assert len(found) == len(set(found)) == ways(available, size)
    assert all(mask.bit_count() == size and mask < 1 << sum(available) for mask in found)


@given(st.integers(0, 12), st.integers(0, 12))
def test_gpus_that_are_all_different_are_chosen_in_every_way(count: int, size: int) -> None:
    """The binomial coefficient."""
    assert ways([1] * count, size) == comb(count, size)


def test_few_sets_of_many_groups_are_found_without_looking_at_halves_in_vain() -> None:
    """All but one of 72 GPUs that differ: each half alone has 69 thousand million sets."""
    groups = [1 << i for i in range(72)]
    assert sorted(subsets(groups, 71)) == sorted((1 << 72) - 1 ^ group for group in groups)


def test_the_lowest_of_equals_is_the_lowest_of_72_gpus_too() -> None:
    """Positions are compared one after another, the first one first."""
    pairs = [1 << a | 1 << b for a, b in combinations(range(72), 2)]
    assert sorted(pairs, key=lowest_first, reverse=True) == pairs


def test_a_set_is_made_of_the_lowest_positions() -> None:
    """Within what is free."""
    _, symmetry = symmetry_of("hgx-h100")
    assert symmetry.set_of((3,)) == 0b111
    assert subsets((0b11110000,), 3) == [0b01110000]


def forged() -> NodeTopology:
    """Return twelve GPUs without links among them, told apart only by which of the last four they are linked to."""
    gpus = tuple(Gpu(at, f"GPU-{at}", "forged", compute_capability=(8, 0)) for at in range(16))
    linked = [(low, high) for low in range(12) for high in range(12, 16) if low + 1 >> high - 12 & 1]
    return NodeTopology(gpus, tuple(Link(low, high, nvlinks=1) for low, high in linked))


def test_a_forged_topology_does_not_cost_more_than_a_look() -> None:
    """All 12! orders of the first twelve look like swaps until the others come."""
    wiring = Wiring(forged())
    Symmetry(wiring, ["forged"] * 16)
    assert wiring.meter.steps <= 80_000 / 8 + 100
