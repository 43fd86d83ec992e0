"""How long a collective takes at a given link rate: latency plus bytes over bandwidth, for the protocol that is fastest.

NCCL cuts a message into steps around the ring and sends each by one of three protocols. LL stores a flag next to every
word, so it starts at once and carries half. LL128 stores one flag in 128 bytes and needs NVLink. Simple synchronises by
step and carries everything. Latencies are those of NCCL 2.30's tuner (`src/tuning`, microseconds). Inside one node they
give its tree the same number of hops as the ring and less bandwidth. So a ring stands for both here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from topology.bandwidth.calibration import LATENCY, SENDRECV, Bandwidth, InSwitch

DEFAULT_MESSAGE_BYTES = 2**30
"""What placements are judged by: gradients of a large model come in messages of this order."""


class Collective(StrEnum):
    """nccl-tests' names, and those of the copies that CUDA's p2pBandwidthLatencyTest makes."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    SENDRECV = "sendrecv"
    P2P_UNIDIRECTIONAL = "p2p_unidirectional"
    P2P_BIDIRECTIONAL = "p2p_bidirectional"
    FAN_OUT = "fan_out"

    @property
    def passes(self) -> int:
        """How often the data goes around the ring; 0 for a collective without a ring."""
        return {Collective.ALL_REDUCE: 2, Collective.ALL_GATHER: 1, Collective.REDUCE_SCATTER: 1}.get(self, 0)


class Wire(StrEnum):
    """What a step's latency depends on."""

    NVLINK = "nvlink"
    PCIE = "pcie"


@dataclass(frozen=True, slots=True)
class _Protocol:
    start_us: float
    step_us: float
    share: float
    """Of the bandwidth."""
    limit: float = inf
    """Of `LL_GB_PER_S`."""


LL_GB_PER_S = {7: 39.0, 8: 87.7, 9: 141.0, 10: 282.0}
"""What LL carries at most, by major compute capability (NCCL's `llMaxBws`, one node)."""
_PROTOCOLS = {
    Wire.NVLINK: (_Protocol(6.6, 0.6, 0.5, 1.0), _Protocol(14.0, 1.9, 0.92), _Protocol(8.4, 3.4, 1.0)),
    Wire.PCIE: (_Protocol(6.6, 1.0, 0.5, 1.0), _Protocol(8.4, 5.7, 1.0)),
}


def on_ring(
    rate: Bandwidth, wire: Wire, generation: int, gpus: int, message_bytes: int, collective: Collective
) -> Bandwidth:
    """Return the bus bandwidth of a ring whose narrowest hop has `rate`; rises with the message towards the rate itself.

    `generation` is the major compute capability of the oldest GPU.
    """
    steps = max(collective.passes * (gpus - 1), 1)
    bus_bytes = message_bytes * (steps / gpus if collective.passes else 1.0)
    if collective is Collective.SENDRECV:
        rate = SENDRECV.times(rate)
    ll_gb_per_s = LL_GB_PER_S[min(max(generation, 7), 10)]

    def at(gb_per_s: float, latencies: float) -> float:
        return max(
            _achieved(
                min(gb_per_s * way.share, way.limit * ll_gb_per_s),
                bus_bytes,
                latencies * (way.start_us + steps * way.step_us),
            )
            for way in _PROTOCOLS[wire]
        )

    return Bandwidth(at(rate.low, LATENCY.high), at(rate.point, LATENCY.point), at(rate.high, LATENCY.low))


def in_switch(link_gb_per_s: float, how: InSwitch, gpus: int, message_bytes: int) -> Bandwidth:
    """Return the bus bandwidth of an all-reduce that the NVSwitch performs.

    A GPU sends all its data into the switch and its share of the result to the others. That is n+1 parts of n, where a
    ring's bus bandwidth counts 2(n-1).
    """
    bus_bytes = message_bytes * 2 * (gpus - 1) / gpus
    rate = how.ratio.of(link_gb_per_s * 2 * (gpus - 1) / (gpus + 1))
    slow, fast = how.start_us * LATENCY.high / LATENCY.point, how.start_us * LATENCY.low / LATENCY.point
    return Bandwidth(
        _achieved(rate.low, bus_bytes, slow),
        _achieved(rate.point, bus_bytes, how.start_us),
        _achieved(rate.high, bus_bytes, fast),
    )


def _achieved(gb_per_s: float, bus_bytes: float, latency_us: float) -> float:
    """Bytes over time; GB/s are thousands of bytes per microsecond."""
    return bus_bytes / (1e3 * latency_us + bus_bytes / gb_per_s) if gb_per_s > 0 else 0.0
