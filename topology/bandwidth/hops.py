"""What one hop of a ring carries: NVLinks between two GPUs, peer access below a PCIe switch, or a detour through host memory.

NCCL lets GPUs write to each other over PCIe only below a common switch (`NCCL_P2P_LEVEL`, default PXB). It does so
anywhere when an AMD host has no more than two of them. All others meet in host memory. First comes whether peer access
works at all. NVML's answer counts, then what the stock driver does for that product. What is only supposed widens the
interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from topology.bandwidth.calibration import (
    HOST_STAGED,
    NVLINK_RING,
    NVLINK_RING_UNKNOWN,
    NVSWITCH_RING,
    NVSWITCH_RING_UNKNOWN,
    PEER_PCIE,
    SOCKET,
    SOCKET_HIGH,
    Bandwidth,
    Ratio,
)
from topology.bandwidth.rings import members_of
from topology.node.architectures import architecture_of
from topology.node.graph import Route, Routes, gpu_vertex
from topology.node.links import PciePath
from topology.node.model import NodeTopology

DEFAULT_PEER_LEVEL = PciePath.PXB
"""How far apart two GPUs may be for NCCL to let them access each other over PCIe."""


def link_ratio(capability: tuple[int, int]) -> Ratio:
    """Return what rings over links from GPU to GPU make of NCCL's constant."""
    return NVLINK_RING.get(capability, NVLINK_RING_UNKNOWN)


def switch_ratio(generation: int) -> Ratio:
    """Return what rings through an NVSwitch make of NCCL's constant, by major compute capability."""
    return NVSWITCH_RING.get(generation, NVSWITCH_RING_UNKNOWN)


def over_links(node: NodeTopology, i: int, j: int, gb_per_s: float, capability: tuple[int, int]) -> Bandwidth:
    """Return the rate between two positions over NVLinks of `gb_per_s` each, straight ones and those through the NVSwitch."""
    link = node.pairs[min(i, j), max(i, j)]
    straight = 0 if link.p2p is False else link.nvlinks
    direct = link_ratio(capability).of(straight * gb_per_s)
    switched = switch_ratio(capability[0]).of((node.nvlinks(i, j) - straight) * gb_per_s)
    return Bandwidth(direct.low + switched.low, direct.point + switched.point, direct.high + switched.high)


def over_host(node: NodeTopology, i: int, j: int, route: Route, peer_level: PciePath) -> Bandwidth:
    """Return the rate between two positions over PCIe."""
    staged = HOST_STAGED.of(route.host_gb_per_s)
    peer = PEER_PCIE.of(route.host_gb_per_s)
    socket, socket_high = SOCKET * route.socket_gb_per_s, SOCKET_HIGH * route.socket_gb_per_s
    near = node.path(i, j) <= peer_level
    if near and has_peer_access(node, i, j):
        low = peer.low if node.path(i, j) <= PciePath.PXB and _said(node, i, j) else staged.low
        return Bandwidth(min(low, peer.point, socket), min(peer.point, socket), min(peer.high, socket_high))
    high = peer.high if near and _said(node, i, j) is None else staged.high
    return Bandwidth(min(staged.low, socket), min(staged.point, socket), min(high, socket_high))


def has_peer_access(node: NodeTopology, i: int, j: int) -> bool:
    """Whether two positions can access each other over PCIe: as NVML says, else as the stock driver does for such products."""
    said = _said(node, i, j)
    if said is not None:
        return said
    found = [architecture_of(node.gpus[position].model) for position in (i, j)]
    return all(architecture is None or architecture.peer_access for architecture in found)


def _said(node: NodeTopology, i: int, j: int) -> bool | None:
    return node.pairs[min(i, j), max(i, j)].p2p


@dataclass(frozen=True, slots=True)
class Uplink:
    """The wire above a PCIe switch, where GPUs below it may have to share it."""

    members: int
    """Positions below the switch, as a mask."""
    gb_per_s: float
    joined: tuple[int, ...]
    """For each position, the mask of those that it is supposed to reach without that wire."""
    perhaps: tuple[int, ...]
    """The same for those of which nothing that is known denies it."""


def shared_uplinks(
    node: NodeTopology, routes: Routes, linked: Sequence[Sequence[bool]], peer_level: PciePath
) -> tuple[Uplink, ...]:
    """Return the wires above PCIe switches below which not all GPUs reach each other; few machines have any."""
    below: dict[str, int] = {}
    rates: dict[str, float] = {}
    for position, gpu in enumerate(node.gpus):
        if (found := routes.uplink(gpu_vertex(gpu))) is not None:
            switch, rates[switch] = found
            below[switch] = below.get(switch, 0) | 1 << position
    uplinks = []
    for switch, members in below.items():
        joined, perhaps = [members] * len(node), [members] * len(node)
        for i, j in combinations(members_of(members), 2):
            if linked[i][j]:
                continue
            near = node.path(i, j) <= peer_level
            if not (near and has_peer_access(node, i, j)):
                _part(joined, i, j)
            if not near or _said(node, i, j) is False:
                _part(perhaps, i, j)
        if any(joined[i] != members for i in members_of(members)):
            uplinks.append(Uplink(members, rates[switch], tuple(joined), tuple(perhaps)))
    return tuple(uplinks)


def _part(reached: list[int], i: int, j: int) -> None:
    reached[i] &= ~(1 << j)
    reached[j] &= ~(1 << i)


def widest_by_point(hops: Iterable[Bandwidth]) -> dict[float, Bandwidth]:
    """Return the hops by their point, with the widest interval where kinds of hops coincide."""
    found: dict[float, Bandwidth] = {}
    for each in hops:
        other = found.get(each.point, each)
        found[each.point] = Bandwidth(min(each.low, other.low), each.point, max(each.high, other.high))
    return found
