"""The collectives that bandwidth is predicted for, as nccl-tests counts them."""

from __future__ import annotations

from enum import StrEnum


class Collective(StrEnum):
    """nccl-tests' names, and those of the copies that CUDA's p2pBandwidthLatencyTest makes."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    SENDRECV = "sendrecv"
    P2P_UNIDIRECTIONAL = "p2p_unidirectional"
    P2P_BIDIRECTIONAL = "p2p_bidirectional"
    FAN_OUT = "fan_out"
