"""Predicted rate of plain copies between GPUs, as CUDA's p2pBandwidthLatencyTest makes them: no ring, no reduction.

The driver copies over NVLink where there is any. Otherwise it copies over PCIe from GPU to GPU where peer access works at
whatever distance, and else through host memory. Nothing that places pods uses this; it ties the table of constants to
more measurements.
"""

from __future__ import annotations

from topology.bandwidth.calibration import (
    NVLINK_COPY,
    NVLINK_COPY_BOTH_WAYS,
    NVLINK_COPY_GB_PER_S,
    PEER_COPY,
    SHARED_UPLINK,
    SOCKET,
    STAGED_COPY_BOTH_WAYS,
    STAGED_COPY_ONE_WAY,
)
from topology.bandwidth.hops import has_peer_access
from topology.bandwidth.predict import Bandwidth
from topology.node.graph import Routes, build_graph, compute_capability, gpu_vertex, link_gb_per_s
from topology.node.links import PciePath
from topology.node.model import NodeTopology


def copy_rate(node: NodeTopology, i: int, j: int, both_ways: bool) -> Bandwidth:
    """Return the rate of a copy from position `i` to `j`; with `both_ways` of two opposite copies, added up."""
    links = node.nvlinks(i, j)
    if not links:
        return _over_host(node, i, j, both_ways)
    ways = 2 * _both_ways_share(node, i, j) if both_ways else 1
    return NVLINK_COPY.of(ways * links * min(_link_rate(node, i), _link_rate(node, j)))


def fan_out_rate(node: NodeTopology, source: int, targets: tuple[int, ...]) -> Bandwidth:
    """Return the rate at which one GPU writes to several at once, added up: all it has where the links are its own."""
    rates = [copy_rate(node, source, target, both_ways=False) for target in targets]
    if node.gpus[source].switch_links or not all(node.nvlinks(source, target) for target in targets):
        return max(rates, key=lambda rate: rate.point)
    return Bandwidth(
        sum(rate.low for rate in rates), sum(rate.point for rate in rates), sum(rate.high for rate in rates)
    )


def _link_rate(node: NodeTopology, position: int) -> float:
    capability = compute_capability(node.gpus[position])
    known = NVLINK_COPY_GB_PER_S.get(capability) if capability else None
    return known or link_gb_per_s(node.gpus[position])


def _both_ways_share(node: NodeTopology, i: int, j: int) -> float:
    shares = (NVLINK_COPY_BOTH_WAYS.get(compute_capability(node.gpus[k]) or (0, 0), 1.0) for k in (i, j))
    return min(shares)


def _over_host(node: NodeTopology, i: int, j: int, both_ways: bool) -> Bandwidth:
    routes = Routes(build_graph(node))
    ends = gpu_vertex(node.gpus[i]), gpu_vertex(node.gpus[j])
    route = routes.between(*ends)
    ways, socket = (2 if both_ways else 1), SOCKET * route.socket_gb_per_s
    if has_peer_access(node, i, j):
        rate = PEER_COPY.of(route.host_gb_per_s)
        return Bandwidth(ways * min(rate.low, socket), ways * min(rate.point, socket), ways * rate.high)
    rate = (STAGED_COPY_BOTH_WAYS if both_ways else STAGED_COPY_ONE_WAY).of(route.host_gb_per_s)
    above = routes.uplink(ends[0])
    if both_ways and above is not None and above == routes.uplink(ends[1]) and node.path(i, j) <= PciePath.PXB:
        share = SHARED_UPLINK * above[1] / 2
        return Bandwidth(2 * min(rate.low, share), 2 * min(rate.point, share), 2 * min(rate.high, above[1] / 2))
    return Bandwidth(ways * min(rate.low, socket), ways * min(rate.point, socket), ways * rate.high)
