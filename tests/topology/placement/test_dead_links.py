"""A dead NVLink lowers the bandwidth of the sets that would use it, rings go around it, and other sets are preferred."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.bandwidth.predict import Bandwidth
from topology.formats.catalog import machine
from topology.node.links import Affinity
from topology.node.model import NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

ALL = 0xFF


def without_links(node: NodeTopology, lost: Mapping[tuple[int, int], int]) -> NodeTopology:
    """Return a machine that has lost so many of the straight links between pairs."""
    links = (replace(link, nvlinks=link.nvlinks - lost.get((link.a, link.b), 0)) for link in node.links)
    return replace(node, links=tuple(links))


def without_switch_links(node: NodeTopology, gpu: int, lost: int) -> NodeTopology:
    """Return a machine one of whose GPUs has lost so many of its links to the NVSwitches."""
    gpus = (replace(each, switch_links=each.switch_links - lost * (each.index == gpu)) for each in node.gpus)
    return replace(node, gpus=tuple(gpus))


def best(node: NodeTopology, size: int, **wanted: object) -> Placement:
    request = replace(GpuRequest.plain(size), **wanted)  # type: ignore[arg-type]
    found = decide(Situation(TopologyClass(node), ALL), request)
    assert isinstance(found, Placement) and found.bandwidth is not None
    return found


def rate(node: NodeTopology, *gpus: int) -> Bandwidth:
    return TopologyClass(node).predict(sum(1 << gpu for gpu in gpus))[0]


def neighbours(placement: Placement) -> set[frozenset[int]]:
    ring = placement.gpus
    return {frozenset(pair) for pair in pairwise((*ring, ring[0]))}


CUBE = machine("dgx-1v")
BROKEN_CUBE = without_links(CUBE, {(0, 3): 2})
LIMPING_CUBE = without_links(CUBE, {(0, 3): 1})


@pytest.mark.parametrize("node", [BROKEN_CUBE, LIMPING_CUBE], ids=["both links", "one of two"])
def test_on_a_cube_mesh_four_gpus_come_from_the_whole_half(node: NodeTopology) -> None:
    """Without the fault the lowest four are chosen; with it the other four are as fast as ever, and the lowest are not."""
    assert set(best(CUBE, 4).gpus) == {0, 1, 2, 3}
    assert set(best(node, 4).gpus) == {4, 5, 6, 7}
    assert best(node, 4).bandwidth == best(CUBE, 4).bandwidth
    assert rate(node, 0, 1, 2, 3).point < rate(CUBE, 0, 1, 2, 3).point


def test_the_fewer_links_are_left_the_less_is_predicted() -> None:
    """For the half with the fault, and for all eight, which cannot do without it."""
    for gpus in ((0, 1, 2, 3), range(8)):
        whole, limping, broken = (rate(node, *gpus).point for node in (CUBE, LIMPING_CUBE, BROKEN_CUBE))
        assert whole > limping > broken > 0


def test_a_ring_goes_around_the_pair_without_a_link() -> None:
    """Of eight GPUs all are needed; 0 and 3 were neighbours, and no longer are."""
    assert frozenset({0, 3}) in neighbours(best(CUBE, 8))
    around = best(BROKEN_CUBE, 8)
    assert frozenset({0, 3}) not in neighbours(around)
    assert around.affinity is Affinity.NVLINK
    assert all(BROKEN_CUBE.nvlinks(*pair) for pair in neighbours(around))


@pytest.mark.parametrize("name", ["dgx-a100", "hgx-h100"])
def test_behind_a_switch_the_gpu_with_dead_links_is_left_out(name: str) -> None:
    """Three of GPU 2's links are dead: up to seven GPUs do without it and are as fast as ever; eight cannot, and are told so."""
    whole, hurt = machine(name), without_switch_links(machine(name), 2, 3)
    for size in (2, 4, 7):
        assert 2 not in best(hurt, size).gpus
        assert best(hurt, size).bandwidth == best(whole, size).bandwidth
    fewer, all_of_them = best(hurt, 8).bandwidth, best(whole, 8).bandwidth
    assert fewer is not None and all_of_them is not None
    links = whole.gpus[2].switch_links
    assert fewer.point == pytest.approx(all_of_them.point * (links - 3) / links, rel=0.01)


def test_a_floor_on_bandwidth_refuses_what_the_dead_link_cannot_give() -> None:
    """The pod that needs what eight GPUs of a whole machine reach waits for another one."""
    floor = best(CUBE, 8).bandwidth
    assert floor is not None
    request = replace(GpuRequest.plain(8), min_bandwidth_gb_per_s=floor.point)
    assert not isinstance(decide(Situation(TopologyClass(BROKEN_CUBE), ALL), request), Placement)


PAIRS = [pair for pair in combinations(range(8), 2) if CUBE.nvlinks(*pair)]


@pytest.mark.slow
@given(st.sets(st.sampled_from(PAIRS), max_size=6), st.integers(2, 8))
def test_no_set_is_faster_with_a_dead_link_and_none_that_does_not_use_it_slower(
    dead: set[tuple[int, int]], size: int
) -> None:
    """Any links of a cube mesh, and every set of so many GPUs."""
    node = without_links(CUBE, {pair: CUBE.nvlinks(*pair) for pair in dead})
    whole, hurt = TopologyClass(CUBE), TopologyClass(node)
    for gpus in combinations(range(8), size):
        mask = sum(1 << gpu for gpu in gpus)
        before, after = whole.predict(mask)[0].point, hurt.predict(mask)[0].point
        assert after <= before + 1e-9
        if not any(set(pair) <= set(gpus) for pair in dead):
            assert after == before
