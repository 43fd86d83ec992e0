"""Hops over the host: peer access, the CPU between sockets, a shared wire above a switch, POWER9."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given

from tests.strategies.topologies import topologies
from topology.bandwidth.predict import Bandwidth, Wiring, predict
from topology.formats.catalog import machine
from topology.node.architectures import cpu_socket_gb_per_s
from topology.node.graph import build_graph
from topology.node.links import PciePath
from topology.node.model import Gpu, Link, NodeTopology

GEFORCE, DATA_CENTRE = "NVIDIA GeForce RTX 4090", "NVIDIA L40S"


def box(model: str, path: PciePath, gpus: int = 2, p2p: bool | None = None, **more: object) -> NodeTopology:
    """`gpus` GPUs without NVLink, all equally far apart."""
    links = tuple(Link(a, b, path=path, p2p=p2p) for a, b in combinations(range(gpus), 2))
    return NodeTopology(tuple(Gpu(i, f"u{i}", model) for i in range(gpus)), links, **more)  # type: ignore[arg-type]


def rate(node: NodeTopology, level: PciePath = PciePath.PXB) -> Bandwidth:
    return predict(Wiring(node, level), (1 << len(node)) - 1)[0]


def test_peer_access_below_a_switch_beats_host_memory() -> None:
    """NVML's word decides; without it the stock driver of the product, with an interval that holds both."""
    works, fails = rate(box(GEFORCE, PciePath.PIX, p2p=True)), rate(box(GEFORCE, PciePath.PIX, p2p=False))
    supposed = rate(box(GEFORCE, PciePath.PIX))
    assert fails.point < supposed.point < works.point
    assert supposed.low <= fails.point and works.point <= supposed.high
    assert rate(box(DATA_CENTRE, PciePath.PIX)).point == works.point


def test_nccl_goes_through_host_memory_beyond_a_switch() -> None:
    """Even where peer access works, unless the level is raised."""
    across = box(DATA_CENTRE, PciePath.NODE, gpus=3, p2p=True)
    assert rate(across).point == rate(box(DATA_CENTRE, PciePath.NODE, gpus=3, p2p=False)).point
    assert rate(across, PciePath.SYS).point > rate(across).point


def test_two_gpus_of_an_amd_host_reach_each_other_across_it() -> None:
    """NCCL's exception, for exactly two."""
    intel, amd = (box(DATA_CENTRE, PciePath.NODE, cpu_vendor=vendor) for vendor in ("intel", "amd"))
    assert rate(amd).point > rate(intel).point
    three_intel, three_amd = (box(DATA_CENTRE, PciePath.NODE, gpus=3, cpu_vendor=vendor) for vendor in ("intel", "amd"))
    assert rate(three_amd) == rate(three_intel)


@pytest.mark.parametrize(
    ("vendor", "model", "generation", "gb_per_s"),
    [
        ("intel", "6/79", 3, 6.0),
        ("intel", "6/85", 3, 10.0),
        ("intel", "6/143", 5, 22.0),
        ("intel", "6/207", 5, 40.0),
        ("intel", "something else", 5, 22.0),
        ("amd", "25/17", 5, 16.0),
        ("power9", "POWER9", 3, 32.0),
        (None, None, 3, 10.0),
        (None, None, 5, 22.0),
    ],
)
def test_the_cpu_decides_what_passes_between_sockets(
    vendor: str | None, model: str | None, generation: int, gb_per_s: float
) -> None:
    """NCCL's constants; where the CPU is not known, those of the servers that brought the PCIe generation."""
    assert cpu_socket_gb_per_s(vendor, model, generation) == gb_per_s


def test_a_faster_cpu_lifts_a_ring_across_sockets_only() -> None:
    """Gen 5 cards on Broadwell, Sapphire and Emerald Rapids."""
    models = ("6/79", "6/143", "6/207")
    apart = [rate(box(GEFORCE, PciePath.SYS, cpu_vendor="intel", cpu_model=each)).point for each in models]
    together = {rate(box(GEFORCE, PciePath.NODE, cpu_vendor="intel", cpu_model=each)) for each in models}
    assert apart[0] < apart[1] and len(together) == 1


def test_gpus_that_must_leave_their_switch_share_the_wire_above_it() -> None:
    """Known to be without peer access, two on one switch are slower than two on different ones, four slower still."""
    paths = {pair: PciePath.PIX if max(pair) < 4 else PciePath.NODE for pair in combinations(range(8), 2)}
    links = tuple(Link(a, b, path=path, p2p=False) for (a, b), path in paths.items())
    wiring = Wiring(NodeTopology(tuple(Gpu(i, f"u{i}", GEFORCE) for i in range(8)), links))
    apart, two, four = (predict(wiring, members)[0] for members in (0b110000, 0b11, 0b1111))
    assert four.point * 1.9 < two.point < apart.point
    assert four.high < two.high < apart.high


def test_a_supposition_shuns_no_near_neighbour() -> None:
    """Where nobody said that peer access fails, only the low end knows of the shared wire."""
    near, far = rate(box(GEFORCE, PciePath.PIX)), rate(box(GEFORCE, PciePath.NODE))
    assert near.point == far.point and near.high > far.high


@pytest.mark.slow
@given(topologies(min_gpus=2, max_gpus=5))
def test_peer_access_never_hurts(node: NodeTopology) -> None:
    """Denied to all, as it is, granted to all: in that order, on machines that nobody has built; nor does a wider level hurt."""
    denied, granted = (with_peer_access(node, works) for works in (False, True))
    assert rate(denied).point <= rate(node).point <= rate(granted).point
    assert rate(granted).point <= rate(granted, PciePath.SYS).point


def with_peer_access(node: NodeTopology, works: bool) -> NodeTopology:
    known = {(link.a, link.b): link for link in node.links}
    pairs = combinations((gpu.index for gpu in node.gpus), 2)
    return replace(node, links=tuple(replace(known.get(pair, Link(*pair)), p2p=works) for pair in pairs))


def test_power9_reaches_its_gpus_over_nvlink() -> None:
    """Three links of a V100 to its CPU carry more than PCIe does; two GPUs across the sockets feel it."""
    node = machine("ac922-4")
    graph = build_graph(node)
    assert graph.edges["gpu0", "host-bridge0"] == {"kind": "cpu-nvlink", "count": 3, "gb_per_s": 60.0}
    across = predict(Wiring(node), 0b0101)[0].point
    assert across > 2 * predict(Wiring(replace(node, cpu_vendor="intel")), 0b0101)[0].point


def test_bridged_h100_pcie_cards_run_at_what_was_measured() -> None:
    """115 GB/s over a bridge of twelve links, half of what the generation's constant promises (NVIDIA/nccl issue 1161)."""
    gpus = tuple(Gpu(i, f"u{i}", "NVIDIA H100 PCIe") for i in range(2))
    assert rate(NodeTopology(gpus, (Link(0, 1, nvlinks=12),))).point == pytest.approx(115.4, rel=0.03)


def test_what_is_not_known_of_a_machine_widens_the_interval() -> None:
    """A GPU of next year on links of next year is predicted, with less certainty than an A100."""

    def width(model: str) -> float:
        pair = NodeTopology(tuple(Gpu(i, f"u{i}", model) for i in range(2)), (Link(0, 1, nvlinks=4),))
        found = rate(pair)
        return (found.high - found.low) / found.point

    assert width("a GPU of next year") > 2 * width("NVIDIA A100-SXM4-80GB")
