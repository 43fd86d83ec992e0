"""Predicted bandwidth: the published figures of common machines, and what must hold on every machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.topologies import topologies
from topology.bandwidth.predict import Bandwidth, Wiring, predict
from topology.bandwidth.rings import members_of
from topology.formats.catalog import MACHINES, machine
from topology.node.links import Affinity, PciePath
from topology.node.model import Gpu, Link, NodeTopology


def of(node: NodeTopology, *positions: int) -> tuple[Bandwidth, Affinity]:
    return predict(Wiring(node), sum(1 << i for i in positions or range(len(node))))


@pytest.mark.parametrize(
    ("name", "positions", "measured_gb_per_s"),
    [
        ("dgx-1v", range(8), 135.5),
        ("dgx-a100", range(8), 234.9),
        ("dgx-a100", range(4, 8), 234.7),
        ("hgx-h200", range(8), 473.1),
        ("hgx-h200", range(4), 363.3),
        ("hgx-b200", range(8), 838.0),
        ("a100-pcie-8-pairs", (0, 1), 208.0),
    ],
)
def test_published_measurements_lie_in_the_interval(name: str, positions: range, measured_gb_per_s: float) -> None:
    """nccl-tests' all-reduce results for large messages, from public reports; the first and the last are in no fitted row."""
    bandwidth, affinity = of(machine(name), *positions)
    assert bandwidth.low <= measured_gb_per_s <= bandwidth.high
    assert affinity is Affinity.NVLINK


def test_one_missing_hop_is_a_cliff() -> None:
    """Two bridged A100s are fast; with a third one across PCIe the whole set is PCIe-class."""
    pairs = machine("a100-pcie-8-pairs")
    fast, slow = of(pairs, 0, 1), of(pairs, 0, 1, 2)
    assert fast[1] is Affinity.NVLINK and slow[1] is not Affinity.NVLINK
    assert slow[0].point * 5 < fast[0].point


def test_two_bridged_pairs_may_reach_twice_one_wire() -> None:
    """Rings in both directions leave each pair by different GPUs; a GPU without a bridge has one wire for both. Points stay."""
    pairs = machine("a100-pcie-8-pairs")
    (two, _), (odd, _) = of(pairs, 0, 1, 2, 3), of(pairs, 0, 1, 2)
    assert two.low < 30.8 < two.high and odd.high < 30
    assert two.point == pytest.approx(odd.point, rel=0.01)


def test_a_thin_link_is_never_worse_than_the_pcie_beside_it() -> None:
    """One NVLink of an old kind beside a gen 5 switch: NCCL takes the faster of the two, and the set still counts as linked."""
    gpus = tuple(Gpu(i, f"u{i}", "NVIDIA RTX A6000", pcie_generation=5) for i in range(2))
    linked = NodeTopology(gpus, (Link(0, 1, nvlinks=1, path=PciePath.PIX),))
    apart = NodeTopology(gpus, (Link(0, 1, path=PciePath.PIX),))
    assert of(linked)[0] == of(apart)[0]
    assert of(linked)[1] is Affinity.NVLINK


def test_a_ring_through_the_switch_depends_on_no_particular_gpus() -> None:
    """Any two to four GPUs of an HGX H100 reach the same bandwidth, but for the latency of a longer ring."""
    node = machine("hgx-h100")
    assert of(node, 0, 1) == of(node, 0, 7) and of(node, 0, 1, 2, 3) == of(node, 1, 3, 5, 7)
    assert of(node, 0, 1, 2, 3)[0].point == pytest.approx(of(node, 2, 6)[0].point, rel=0.005)


def test_a_gpu_off_the_fabric_makes_the_set_pcie_class() -> None:
    """A B200 whose fabric is not ready has no NVLink to anybody, whatever its neighbours have."""
    node = machine("hgx-b200-gpu2-off-fabric")
    assert of(node, 0, 1)[1] is Affinity.NVLINK
    assert of(node, 0, 1, 2)[1] is not Affinity.NVLINK


def test_links_without_peer_access_are_not_counted() -> None:
    """NCCL refuses NVLinks over which peer access is denied, so they are worth PCIe."""
    node = machine("a100-pcie-8-pairs")
    denied = replace(node, links=tuple(replace(link, p2p=False) for link in node.links))
    assert of(denied, 0, 1)[1] is not Affinity.NVLINK
    assert of(denied, 0, 1)[0].point < 30


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MACHINES if len(machine(name)) <= 8])
def test_removing_a_link_never_helps(name: str) -> None:
    """On every reference machine, for every set of GPUs and every link."""
    node = machine(name)
    before = points(node)
    for worse in without_one_link(node):
        assert all(after <= was for after, was in zip(points(worse), before, strict=True))


@pytest.mark.slow
@given(topologies(min_gpus=2, max_gpus=6), st.data())
def test_removing_a_link_never_helps_on_any_topology(node: NodeTopology, data: st.DataObject) -> None:
    """The same on machines that nobody has built."""
    everyone = (1 << len(node)) - 1
    mask = data.draw(st.integers(1, everyone).filter(lambda mask: mask.bit_count() >= 2))
    before = predict(Wiring(node), mask)[0].point
    assert all(predict(Wiring(worse), mask)[0].point <= before for worse in without_one_link(node))


def test_a_dead_link_between_gpus_is_none_to_the_processor() -> None:
    """On a POWER9 each V100 of three has two links to its socket, however many of those to the other two are up."""
    node = machine("ac922-6")
    dead = tuple(replace(link, nvlinks=1) if (link.a, link.b) in {(0, 1), (3, 4)} else link for link in node.links)
    assert of(replace(node, links=dead), 0, 3) == of(node, 0, 3)


@pytest.mark.slow
@given(topologies(min_gpus=2, max_gpus=6), st.randoms(use_true_random=False))
def test_relabelling_changes_nothing(node: NodeTopology, random: object) -> None:
    """The order in which NVML lists the GPUs does not matter."""
    order = list(range(len(node)))
    random.shuffle(order)  # type: ignore[attr-defined]
    wiring, other = Wiring(node), Wiring(relabelled(node, order))
    for mask in sets(node):
        moved = sum(1 << order[i] for i in members_of(mask))
        assert predict(other, moved) == predict(wiring, mask)


def test_unlike_gpus_below_one_switch_of_a_power9_are_no_matter_of_order() -> None:
    """The wire to the processor is the best that any of them has, and not the first one's."""
    models = ("NVIDIA H100 80GB HBM3",) * 3 + ("Tesla V100-SXM2-32GB",)
    gpus = tuple(Gpu(i, f"GPU-{i:08}-0000-4000-8000-000000000000", model) for i, model in enumerate(models))
    node = NodeTopology(gpus, (Link(1, 3, 2), Link(2, 3, 2, PciePath.INTERNAL)), cpu_vendor="power9")
    assert of(relabelled(node, [0, 1, 3, 2]), 0, 3) == of(node, 0, 2)


def points(node: NodeTopology) -> list[float]:
    wiring = Wiring(node)
    return [predict(wiring, mask)[0].point for mask in sets(node)]


def sets(node: NodeTopology) -> list[int]:
    return [mask for mask in range(1 << len(node)) if mask.bit_count() >= 2]


def without_one_link(node: NodeTopology) -> list[NodeTopology]:
    direct = [
        replace(node, links=(*node.links[:i], replace(link, nvlinks=link.nvlinks - 1), *node.links[i + 1 :]))
        for i, link in enumerate(node.links)
        if link.nvlinks
    ]
    switched = [
        replace(node, gpus=(*node.gpus[:i], replace(gpu, switch_links=gpu.switch_links - 1), *node.gpus[i + 1 :]))
        for i, gpu in enumerate(node.gpus)
        if gpu.switch_links
    ]
    return direct + switched


def relabelled(node: NodeTopology, order: list[int]) -> NodeTopology:
    """Give the GPU at position i the index and place of the one at order[i]."""
    indexes = [gpu.index for gpu in node.gpus]
    to = {indexes[i]: indexes[order[i]] for i in range(len(node))}
    gpus = sorted((replace(gpu, index=to[gpu.index]) for gpu in node.gpus), key=lambda gpu: gpu.index)
    links = [replace(link, a=min(to[link.a], to[link.b]), b=max(to[link.a], to[link.b])) for link in node.links]
    return replace(node, gpus=tuple(gpus), links=tuple(links), nics=())
