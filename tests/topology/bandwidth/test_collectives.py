"""Time of a collective: from latency to link rate as the message grows, and what an NVSwitch that reduces is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.topologies import topologies
from topology.bandwidth.calibration import IN_SWITCH, Bandwidth
from topology.bandwidth.collectives import Collective, Wire, in_switch, on_ring
from topology.bandwidth.predict import Wiring, predict
from topology.formats.catalog import machine
from topology.node.model import NodeTopology

MIB = 2**20
RATE = Bandwidth(220.0, 235.0, 247.0)
ringing = st.sampled_from(
    (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.SENDRECV)
)

sizes = st.floats(0, 40).map(lambda doublings: int(2**doublings))
"""In bytes; each order of magnitude as often as any other, for most of what can go wrong lies below a gigabyte."""


def ring(
    size: int, wire: Wire = Wire.NVLINK, gpus: int = 8, collective: Collective = Collective.ALL_REDUCE
) -> Bandwidth:
    return on_ring(RATE, wire, 8, gpus, size, collective)


def test_a_very_large_message_reaches_the_rate() -> None:
    """Latencies vanish beside a hundred milliseconds."""
    assert ring(16 * 1024 * MIB).point == pytest.approx(RATE.point, rel=0.005)


def test_a_small_message_pays_for_every_step_around_the_ring() -> None:
    """Twice the GPUs are more than twice the steps, over PCIe each of them longer."""
    assert ring(MIB, gpus=16).point < ring(MIB, gpus=8).point < ring(MIB, gpus=4).point
    assert ring(MIB, wire=Wire.PCIE).point < ring(MIB).point


def test_a_gather_goes_around_once_and_a_reduction_twice() -> None:
    """Half the steps of an all-reduce: the same bus bandwidth at the top, sooner there."""
    gathered = ring(MIB, collective=Collective.ALL_GATHER)
    assert gathered.point != ring(MIB).point
    assert ring(2**36, collective=Collective.ALL_GATHER).point == pytest.approx(ring(2**36).point, rel=0.001)


@given(sizes, sizes, st.sampled_from(Wire), st.integers(2, 16), ringing)
def test_a_larger_message_is_never_slower(size: int, other: int, wire: Wire, gpus: int, collective: Collective) -> None:
    """Whatever the protocol that wins at each size."""
    small, large = (ring(each, wire, gpus, collective) for each in sorted((size, other)))
    assert small.low <= large.low + 1e-9 and small.point <= large.point + 1e-9 and small.high <= large.high + 1e-9


@pytest.mark.parametrize(("gpus", "measured_gb_per_s"), [(5, 414.2), (6, 435.6), (7, 460.0), (8, 473.1)])
def test_one_ratio_explains_in_switch_reduction_by_any_number_of_gpus(gpus: int, measured_gb_per_s: float) -> None:
    """n+1 parts of n on the wire: the published H200 figures for five to eight GPUs, within two percent."""
    found = in_switch(18 * 20.6, IN_SWITCH[9], gpus, 8 * 1024 * MIB)
    assert found.point == pytest.approx(measured_gb_per_s, rel=0.02)


def test_small_messages_do_not_go_through_the_switch() -> None:
    """Filling the pipeline through the switch takes longer than a ring of 1 MiB with the low-latency protocol."""
    wiring = Wiring(machine("hgx-h200"))
    whole = (1 << 8) - 1
    assert predict(wiring, whole, MIB) == predict(wiring, whole, MIB, reduce_in_switch=False)
    assert predict(wiring, whole, 64 * MIB)[0].point > predict(wiring, whole, 64 * MIB, reduce_in_switch=False)[0].point


def test_few_gpus_reduce_on_a_ring_unless_told_otherwise() -> None:
    """NCCL plans with a ring below five Hopper GPUs, and six of Blackwell."""
    wiring = Wiring(machine("hgx-b200"))
    five = 0b11111
    assert predict(wiring, five) == predict(wiring, five, reduce_in_switch=False)
    assert predict(wiring, five, reduce_in_switch=True)[0].point > predict(wiring, five)[0].point


@pytest.mark.parametrize(("cuda_version", "is_ring"), [("12.0", True), ("11.8", True), ("12.1", False), (None, False)])
def test_a_driver_older_than_cuda_12_1_does_not_reduce_in_the_switch(cuda_version: str | None, is_ring: bool) -> None:
    """`cuMulticastCreate`, which NVLS needs, came with that driver; of one that is not known NCCL's default is supposed."""
    wiring = Wiring(replace(machine("hgx-h100"), cuda_version=cuda_version))
    by_default, on_a_ring = predict(wiring, 0xFF), predict(wiring, 0xFF, reduce_in_switch=False)
    assert (by_default == on_a_ring) == is_ring


@pytest.mark.parametrize("name", ["hgx-h100", "hgx-h200", "hgx-h800", "hgx-b200"])
def test_the_interval_holds_a_ring_too_because_many_things_switch_nvls_off(name: str) -> None:
    """A setting of NCCL, an old NCCL, a virtual machine, confidential computing: none of them is seen on the node."""
    wiring = Wiring(machine(name))
    by_default, on_a_ring = predict(wiring, 0xFF)[0], predict(wiring, 0xFF, reduce_in_switch=False)[0]
    in_the_switch = predict(wiring, 0xFF, reduce_in_switch=True)[0]
    assert by_default.low == min(on_a_ring.low, in_the_switch.low) < on_a_ring.point
    assert (by_default.point, by_default.high) == (in_the_switch.point, in_the_switch.high)


@pytest.mark.slow
@given(topologies(min_gpus=2, max_gpus=5), st.integers(0, 34), ringing)
def test_the_point_lies_in_its_interval_and_rises_with_the_message(
    node: NodeTopology, doublings: int, collective: Collective
) -> None:
    """On machines that nobody has built, from one byte to 16 GiB."""
    wiring, whole = Wiring(node), (1 << len(node)) - 1
    found = predict(wiring, whole, 1 << doublings, collective)[0]
    assert 0 <= found.low <= found.point <= found.high
    assert found.point <= predict(wiring, whole, 2 << doublings, collective)[0].point
