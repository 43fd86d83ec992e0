"""What was measured stands in the place of what is predicted, for all sets that are wired alike and for no other."""

from dataclasses import replace
from itertools import combinations

import pytest

from extender.kit.bounded import Bounded
from topology.bandwidth.measured import Conditions, Figure, MeasuredMachine, kind_of
from topology.bandwidth.predict import Bandwidth
from topology.bandwidth.rings import members_of
from topology.effort import finish
from topology.formats.catalog import MACHINES, machine
from topology.node.model import NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.measured_sets import kinds_of_sets
from topology.placement.topology_class import TableKey, TopologyClass
from topology.placement.topology_classes import TopologyClasses
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest
from topology.value.opportunity_cost import Table

CONDITIONS = Conditions("n1", "2026-11-23T15:04:05Z", 2**30, "570.124.06", "2.26.2")
PAIRS = machine("a100-pcie-8-pairs")
"""Bridges join 0-1, 2-3, 4-5 and 6-7."""
CUBE = machine("dgx-1v")


def figure(*gpus: int, gb_per_s: float) -> Figure:
    return Figure(gpus, (gb_per_s, gb_per_s + 1.0, gb_per_s - 1.0), CONDITIONS)


def measured(node: NodeTopology, *figures: Figure) -> TopologyClass:
    compiled = TopologyClass(node)
    compiled.measured(figures)
    return compiled


def best(
    compiled: TopologyClass, gpus: int, free: int = 0xFF, floor_gb_per_s: float | None = None
) -> Placement | Rejection:
    return decide(Situation(compiled, free), replace(GpuRequest.plain(gpus), min_bandwidth_gb_per_s=floor_gb_per_s))


def point(compiled: TopologyClass, *gpus: int) -> float:
    return compiled.predict(sum(1 << gpu for gpu in gpus))[0].point


def test_a_measured_figure_stands_in_the_place_of_the_prediction() -> None:
    """Its bandwidth is the middle run, between the slowest and the fastest, and it says that it is measured."""
    found = best(measured(PAIRS, figure(0, 1, gb_per_s=200.0)), 2)

    assert isinstance(found, Placement)
    assert found.bandwidth == Bandwidth(199.0, 200.0, 201.0, measured=True)


def test_a_figure_holds_for_every_set_that_is_wired_alike() -> None:
    """One bridged pair was measured, and all four are as fast; a pair without a bridge is not."""
    compiled = measured(PAIRS, figure(2, 3, gb_per_s=200.0))

    assert [point(compiled, *pair) for pair in ((0, 1), (2, 3), (4, 5), (6, 7))] == [200.0] * 4
    assert not compiled.predict(0b101)[0].measured


@pytest.mark.parametrize("name", ["dgx-1v", "a100-pcie-8-pairs", "hgx-b200-gpu2-off-fabric", "l40s-8", "ac922-6"])
def test_sets_of_one_kind_have_one_prediction(name: str) -> None:
    """So one figure can stand for all of them; and every set is of the kind of one that would be measured."""
    node = MACHINES[name].build()
    compiled = TopologyClass(node)
    for size in (2, 3, 4):
        kinds = kinds_of_sets(node, compiled.wiring, size)
        predicted = {mask: compiled.predict(mask)[0] for mask in kinds}
        by_kind = measured(
            node, *(Figure(members_of(mask), (1.0 + n / 1e3,), CONDITIONS) for n, mask in enumerate(kinds))
        )
        for gpus in combinations(range(len(node)), size):
            mask = sum(1 << gpu for gpu in gpus)
            found = by_kind.predict(mask)[0]
            assert found.measured
            assert compiled.predict(mask)[0] == predicted[kinds[round((found.point - 1.0) * 1e3)]]


def test_a_floor_on_bandwidth_is_held_against_what_was_measured() -> None:
    """The model promises more than this machine gives: a pod that needs it is not sent there."""
    told = best(TopologyClass(PAIRS), 2, floor_gb_per_s=200.0)
    found = best(measured(PAIRS, figure(0, 1, gb_per_s=150.0)), 2, floor_gb_per_s=200.0)

    assert isinstance(told, Placement)
    assert isinstance(found, Rejection)
    assert found.reason is Reason.BANDWIDTH
    assert found.figures == "the best reach 150 GB/s"


def test_what_was_measured_slow_sends_no_pod_to_a_set_that_the_model_likes_less() -> None:
    """A set is not taken for faster than one of its size that was measured, and that the model puts above it."""
    plain = TopologyClass(CUBE)
    first, second = sorted({point(plain, *pair) for pair in combinations(range(8), 2)}, reverse=True)[:2]
    fastest = next(pair for pair in combinations(range(8), 2) if point(plain, *pair) == first)
    compiled = measured(CUBE, figure(*fastest, gb_per_s=0.8 * second))
    others = [compiled.predict(1 << i | 1 << j)[0] for i, j in combinations(range(8), 2)]

    assert max(other.point for other in others) == 0.8 * second
    assert all(other.high == plain.predict(1 << i | 1 << j)[0].high
               for other, (i, j) in zip(others, combinations(range(8), 2), strict=True) if not other.measured)  # fmt: skip


def test_what_was_measured_fast_raises_no_other_set() -> None:
    """Nobody has seen the others do it."""
    plain = TopologyClass(CUBE)
    compiled = measured(CUBE, figure(0, 1, gb_per_s=1.1 * point(plain, 0, 1)))

    for pair in combinations(range(8), 2):
        found = compiled.predict(sum(1 << gpu for gpu in pair))[0]
        assert found.measured or found == plain.predict(sum(1 << gpu for gpu in pair))[0]


def test_sizes_do_not_speak_for_machinesother() -> None:
    """A slow pair says nothing of four."""
    compiled = measured(PAIRS, figure(0, 1, gb_per_s=1.0))

    assert compiled.predict(0xF) == TopologyClass(PAIRS).predict(0xF)


def test_a_figure_that_the_wires_cannot_carry_is_refused_alone() -> None:
    """It is named with its reason, the prediction stands, and all other figures count."""
    compiled = measured(PAIRS, figure(0, 1, gb_per_s=5000.0), figure(0, 2, gb_per_s=10.0), figure(7, 8, gb_per_s=1.5))
    assert compiled.measured_sets is not None

    assert [(refused.gpus, refused.reason.split(",")[0]) for refused in compiled.measured_sets.refused] == [
        ((0, 1), "5001 GB/s"),
        ((7, 8), "the machine has 8 GPUs"),
    ]
    assert compiled.predict(0b11) == TopologyClass(PAIRS).predict(0b11)
    assert point(compiled, 0, 2) == 10.0


def test_figures_that_are_taken_back_leave_nothing_behind() -> None:
    """Every set is predicted as on a machine that nobody has measured."""
    compiled = measured(PAIRS, figure(0, 1, gb_per_s=150.0))
    best(compiled, 2)

    assert compiled.measured(())
    assert best(compiled, 2) == best(TopologyClass(PAIRS), 2)
    assert not compiled.measured(())


@pytest.mark.slow
def test_values_of_free_sets_follow_what_was_measured() -> None:
    """New figures make them due; an appraisal that was under way when they came does not count."""
    compiled = TopologyClass(CUBE)
    under_way = compiled.appraise(compiled.weights)
    next(under_way)
    compiled.measured((figure(0, 3, gb_per_s=10.0),))
    finish(under_way)
    is_appraised_early = compiled.appraised is not None
    finish(compiled.appraise(compiled.weights))
    fresh = measured(CUBE, figure(0, 3, gb_per_s=10.0))
    finish(fresh.appraise(fresh.weights))

    assert not is_appraised_early
    assert compiled.appraised == compiled.weights
    assert compiled.value(0xFF) == fresh.value(0xFF) != TopologyClass(CUBE).value(0xFF)


def test_a_kind_of_machine_is_its_models_and_wires() -> None:
    """Names, memory and drivers make no other kind; a link less does."""
    other = replace(machine("dgx-1v", host="another"), driver_version="1", cuda_version="2")

    assert kind_of(other) == kind_of(CUBE)
    assert kind_of(machine("dgx-1v-dead-link")) != kind_of(CUBE)
    assert len({kind_of(entry.build()) for entry in MACHINES.values()}) == len(MACHINES)


def test_a_class_that_is_met_later_stands_on_the_figures_too() -> None:
    """And only machines of the kind do."""
    classes = TopologyClasses()
    known = classes.of(CUBE)
    told = {kind_of(PAIRS): MeasuredMachine("8 x A100", (figure(0, 1, gb_per_s=150.0),))}

    assert not classes.measured(told)
    assert point(classes.of(PAIRS), 6, 7) == 150.0
    assert known.measured_sets is None


def test_kept_tables_are_those_of_the_same_question() -> None:
    """A class like another one computes nothing; other figures, or another mix of pods, are computed."""
    kept: Bounded[TableKey, Table] = Bounded(10)
    first, second = (TopologyClass(machine("t4-4"), tables=kept) for _ in range(2))
    alone = TopologyClass(machine("t4-4"))
    assert [len([*machines.appraise(machines.weights)]) > 0 for machines in (first, second, alone)] == [
        True,
        False,
        True,
    ]
    assert first.table
    assert first.table == second.table == alone.table
    changed = replace(first.weights, demand=((1, 1.0),))
    finish(second.appraise(changed))
    assert second.table != first.table
    second.measured((figure(0, 1, gb_per_s=150.0),))
    assert [*second.appraise(first.weights)]
