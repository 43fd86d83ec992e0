"""The one table of fitted numbers: how far real rates are from NCCL's constants, and how sure that is.

A *ratio* multiplies a constant rate; its interval is what other machines of the kind may show. Every entry names the reports it
was fitted on. Reports that only check the model are not among them (docs/explanation/bandwidth.md has the errors of both).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """A predicted rate with its interval, GB/s (decimal); of a collective, the bus bandwidth that nccl-tests counts."""

    low: float
    point: float
    high: float
    measured: bool = False
    """Whether it was measured on such GPUs: the slowest run, the middle one, the fastest."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Measured over constant: what to expect, and between which bounds."""

    point: float
    low: float
    high: float

    def of(self, gb_per_s: float) -> Bandwidth:
        """Return the rate that a constant rate stands for."""
        return Bandwidth(self.low * gb_per_s, self.point * gb_per_s, self.high * gb_per_s)

    def times(self, rate: Bandwidth) -> Bandwidth:
        """Return the rate that another prediction stands for."""
        return Bandwidth(self.low * rate.low, self.point * rate.point, self.high * rate.high)


@dataclass(frozen=True, slots=True)
class InSwitch:
    """NVLS: each GPU sends its data once into the switch, which reduces and spreads it."""

    ratio: Ratio
    """Of the link rate; NCCL plans with 0.85 (Hopper) and 0.74 (Blackwell)."""
    fewest: int
    """GPUs from which on NCCL prefers it to a ring."""
    start_us: float
    """Time until the pipeline through the switch is full."""


NVSWITCH_RING = {
    7: Ratio(1.0, 0.85, 1.15),  # no report; NCCL's constant
    8: Ratio(0.98, 0.92, 1.03),  # stas00, 8 A100: 234.9 of 240
    9: Ratio(0.988, 0.94, 1.03),  # stas00, 4 to 8 H200: 363.3 to 367.6 of 370.8
    10: Ratio(0.942, 0.90, 0.98),  # stas00, 4 to 8 B200: 673.8 to 682.2 of 721.8
}
"""Major compute capability → ratio of a ring through an NVSwitch."""
NVSWITCH_RING_UNKNOWN = Ratio(0.95, 0.7, 1.1)

IN_SWITCH = {
    9: InSwitch(Ratio(0.825, 0.77, 0.87), fewest=5, start_us=85.0),  # stas00, 5 to 8 H200, 8 MiB to 16 GiB
    10: InSwitch(Ratio(0.748, 0.70, 0.79), fewest=6, start_us=160.0),  # stas00, 6 to 8 B200, 8 MiB to 16 GiB
}

IN_SWITCH_FROM_CUDA = (12, 1)
"""The driver's CUDA version from which on there is NVLS: `cuMulticastCreate` came with it."""

NVLINK_RING = {
    (6, 0): Ratio(0.95, 0.75, 1.1),  # Dell C4130: copies over two links 36.4 of 36
    (7, 0): Ratio(1.13, 0.95, 1.2),  # cube mesh of 8 V100: 129.1 of 120 at 128 MiB
    (8, 0): Ratio(0.97, 0.84, 1.04),  # as through the switch; a pair's send and receive reaches 0.91 (Leonardo)
    (8, 6): Ratio(0.99, 0.9, 1.08),  # pair of A40: 47.5 of 48
    (9, 0): Ratio(0.97, 0.8, 1.04),  # as through the switch
}
"""Compute capability → ratio of rings over links from GPU to GPU."""
NVLINK_RING_UNKNOWN = Ratio(0.93, 0.5, 1.15)

PEER_PCIE = Ratio(0.9, 0.5, 1.1)
"""GPU to GPU below a PCIe switch. NCCL's constant is the wire less its framing; copies reach 0.89 of it across an EPYC
(8 RTX 4090, patched driver)."""
HOST_STAGED = Ratio(0.66, 0.055, 1.0)
"""Into host memory and out again at the same time, of the PCIe link. 0.61 (8 RTX 4090, EPYC), 0.73 (4 RTX 5090, Xeon
8480+), 0.60 (DGX-1V, copies both ways). One host has 0.15 with two GPUs and 0.06 with four (A40). The link itself is the
upper bound."""
SHARED_UPLINK = 0.8
"""One way through the link above a PCIe switch when several GPUs below it go through the host: V100 0.80, TITAN RTX 0.83."""
SOCKET = 1.28
"""Of NCCL's constant between CPU sockets: 28 of 22 (Xeon 8480+), 20.6 of 16 (EPYC 7542)."""
SOCKET_HIGH = 2.5
"""At most: the constant is one for a whole CPU family, and two sockets may have two to four wires between them."""

SENDRECV = Ratio(0.94, 0.85, 1.02)
"""Of a ring's rate, for nccl-tests' sendrecv: pair of A100 with 4 links, 71.7 to 73.4 of 80 (Leonardo)."""

LATENCY = Ratio(2.2, 1.0, 5.0)
"""Of the latencies that NCCL's tuner plans with (`topology.bandwidth.collectives`), because a benchmark also launches and
waits.

Fitted on 1 MiB to 128 MiB on 8 A100, 8 V100 and 8 H200. One A100 row at 1 MiB needs 5. No fitted row is faster than
planned."""

NVLINK_COPY_GB_PER_S = {(6, 0): 18.2, (7, 0): 24.2, (8, 0): 22.9, (8, 6): 12.9, (9, 0): 20.6, (10, 0): 40.1}
"""One link, one way, plain copies.

P100: 36.4 over 2 (Dell). V100: 48.5 over 2 both ways (DGX-1V). A100: 274 over 12 and 230 over 10 (rented node). 8.6 is
its signalling rate times A100's share. From Hopper on it is NCCL's constant."""
NVLINK_COPY_BOTH_WAYS = {(8, 0): 0.87}
"""What is left of each way when both are used: 430 to 520 of 550 between 8 A100 (NVIDIA/nccl-tests issue 149); else 1."""
NVLINK_COPY = Ratio(1.0, 0.85, 1.1)
PEER_COPY = Ratio(1.0, 0.1, 1.2)
"""Over PCIe from GPU to GPU: 21.4 of 24 (RTX 4090, across sockets), 50.1 of 48 both ways; a rented node 2.7 of 24. At most the
wire (128 of 130 bits, 1.31 of NCCL's constant) less 24 bytes of framing for 256 of payload."""
STAGED_COPY_ONE_WAY = Ratio(0.86, 0.3, 1.0)
"""Through host memory: 18.8 of 24 (RTX 4090), 11.4 of 12 (TITAN RTX)."""
STAGED_COPY_BOTH_WAYS = Ratio(0.6, 0.25, 0.8)
"""Each way: 7.1 to 7.2 of 12 (DGX-1V)."""
