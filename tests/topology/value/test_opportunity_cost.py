"""What a free set is worth: computed for every set of a machine, for the pods to come."""

from __future__ import annotations

from itertools import combinations

import pytest

from topology.effort import finish
from topology.formats.catalog import MACHINES, machine
from topology.placement.topology_class import TopologyClass
from topology.value.opportunity_cost import MAX_SETS, SizeDemand, Table, value_table
from topology.value.score import Weights
from topology.value.symmetry import Counts, Symmetry

DEMAND = ((1, 0.4), (2, 0.35), (4, 0.25))


def appraised(name: str, weights: Weights = Weights(demand=DEMAND)) -> TopologyClass:  # noqa: B008 - a frozen value
    topology_class = TopologyClass(machine(name))
    finish(topology_class.appraise(weights))
    return topology_class


def masks(count: int) -> range:
    return range(1 << count)


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_no_free_gpu_is_worth_nothing_and_one_more_is_never_worth_less(name: str) -> None:
    """On every machine of the catalogue, for every free set up to eight GPUs, for counts beyond."""
    found = appraised(name)
    count = len(found.node)
    free_sets = masks(count) if count <= 8 else [(1 << n) - 1 for n in range(count + 1)]
    assert found.value(0) == 0
    for free in free_sets:
        assert all(found.value(free | 1 << i) > found.value(free) for i in range(count) if not free >> i & 1), bin(free)


@pytest.mark.slow
def test_four_gpus_of_one_island_are_worth_more_than_any_other_four() -> None:
    """The two cliques of a hybrid cube mesh, which the sizes alone would not tell from the rest."""
    found = appraised("dgx-1v")
    fours = {sum(1 << i for i in four): found.value(sum(1 << i for i in four)) for four in combinations(range(8), 4)}
    dearest = max(fours.values())
    assert {free for free, value in fours.items() if value > dearest - 1e-6} == {0b00001111, 0b11110000}


def test_a_single_pod_goes_where_it_breaks_no_island() -> None:
    """Five GPUs are free, four of them an island."""
    found = appraised("dgx-1v")
    lost = {gpu: found.value(0b00011111) - found.value(0b00011111 & ~(1 << gpu)) for gpu in range(5)}
    assert min(lost, key=lost.__getitem__) == 4


@pytest.mark.parametrize("name", ["a100-sxm4-4", "dgx-2"])
def test_gpus_are_about_as_scarce_on_machines_of_any_size(name: str) -> None:
    """Four or sixteen: at a fixed load so many GPUs side by side would hardly ever run out, and be worth nothing."""
    small, other = appraised("hgx-h100"), appraised(name)
    each, wanted = (found.value((1 << len(found.node)) - 1) / len(found.node) for found in (other, small))
    assert wanted / 2 < each < 2 * wanted


def test_the_same_demand_gives_the_same_values() -> None:
    """Nothing is drawn by lot."""
    one, other = (appraised("a100-pcie-8-pairs") for _ in range(2))
    assert [one.value(free) for free in masks(8)] == [other.value(free) for free in masks(8)]


def test_a_machine_that_nobody_wants_whole_is_not_kept_whole() -> None:
    """Where only single GPUs are asked for, all sets of a size are worth the same."""
    found = appraised("dgx-1v", Weights(demand=((1, 1.0),)))
    by_count: dict[int, list[float]] = {}
    for free in masks(8):
        by_count.setdefault(free.bit_count(), []).append(found.value(free))
    assert all(max(values) - min(values) < 1e-6 for values in by_count.values())


@pytest.mark.slow
@pytest.mark.parametrize("wholes", [0.006, 0.012, 0.02])
@pytest.mark.parametrize("name", ["dgx-1v", "hgx-h100", "a100-pcie-8-pairs"])
def test_a_machine_that_few_want_whole_is_kept_whole_all_the_same(name: str, wholes: float) -> None:
    """Its last GPU is worth more than its first, though prices swing for ever where large pods are rare."""
    found = appraised(name, Weights(demand=((1, 0.95 - wholes), (2, 0.05), (8, wholes))))
    first, last = (found.value(upto) - found.value(upto >> 1) for upto in (0b1, 0b11111111))
    assert last > 2 * first


@pytest.mark.slow
def test_plans_weigh_by_formula_until_the_values_are_computed() -> None:
    """Both are of one scale, so that a node with values and one without can be compared."""
    found = TopologyClass(machine("dgx-1v"))
    whole = (1 << 8) - 1
    by_formula = found.value(whole)
    finish(found.appraise(found.weights))
    assert found.appraised == found.weights
    assert 0.5 < by_formula / found.value(whole) < 2


def test_a_machine_with_too_many_different_free_sets_gets_no_table() -> None:
    """Fourteen GPUs of which no two are alike have 8,192 free sets of even size."""
    found = finish(value_table(Unlike(14), [SizeDemand(2, 1.0, pairs)]))
    assert MAX_SETS < 1 << 13
    assert found is None


def test_where_single_gpus_lead_to_too_many_sets_none_is_looked_at() -> None:
    """Thirteen GPUs of which no two are alike have 8,192 free sets, as is known beforehand."""
    assert finish(value_table(Unlike(13), [SizeDemand(1, 1.0, never_asked)])) is None


def test_a_machine_too_small_for_every_pod_to_come_is_worth_nothing() -> None:
    """Two GPUs, and all pods want four."""
    found = appraised("rtx-3090-2", Weights(demand=((4, 1.0),)))
    assert found.table is None
    assert found.value(0b11) == 0


def test_a_free_set_that_no_pod_of_the_mix_leaves_behind_has_a_value_too() -> None:
    """Where all pods to come want four GPUs, a pod of one still leaves seven."""
    found = appraised("dgx-1v", Weights(demand=((4, 1.0),)))
    assert found.table is not None
    assert found.value(0b01111111) > 0


def test_a_machine_that_no_mix_of_pods_fills_has_values_too() -> None:
    """Six GPUs, and all pods to come want four: it is never without a free GPU."""
    found = appraised("ac922-6", Weights(demand=((4, 1.0),)))
    assert found.value(0b111111) > found.value(0b000011) >= found.value(0) == 0


def test_the_computation_can_be_left_at_any_step() -> None:
    """Nothing changes before it is through."""
    found = TopologyClass(machine("dgx-1v"))
    before = [found.value(free) for free in masks(8)]
    steps = found.appraise(found.weights)
    for _ in range(50):
        next(steps)
    assert [found.value(free) for free in masks(8)] == before


class Unlike(Symmetry):
    """GPUs each of its own kind."""

    def __init__(self, count: int) -> None:
        self.groups = tuple(1 << i for i in range(count))
        self.sizes = (1,) * count
        self._swaps = [tuple(range(count))]

    def canonical(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        return counts


def pairs(free: Counts) -> list[tuple[Counts, float]]:
    chosen = combinations([i for i, count in enumerate(free) if count], 2)
    return [(tuple(int(i in pair) for i in range(len(free))), 1.0) for pair in chosen]


def never_asked(free: Counts) -> list[tuple[Counts, float]]:
    raise AssertionError("a set is looked at")


def singles(free: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
    return [(tuple(int(i == j) for j in range(len(free))), 1.0) for i, count in enumerate(free) if count]


def test_tables_of_machines_that_are_alike_are_small() -> None:
    """An NVSwitch machine has one free set of each count."""
    table: Table | None = appraised("hgx-h100").table
    assert table is not None
    assert sorted(table) == [(count,) for count in range(9)]
