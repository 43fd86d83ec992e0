"""Predicted bus bandwidth of a GPU set: what NCCL's ring search would find on the wires, what it is worth, and how long it takes.

There are three ways to run a ring, and NCCL takes the fastest. One goes over links from GPU to GPU (several rings side by
side). One goes through an NVSwitch (closed form, or reduced inside the switch). One goes partly over PCIe, where the
narrowest hop decides. One missing link is therefore a cliff and not a slope, and a sum over pairs would not see it.
Numbers that were fitted are in `topology.bandwidth.calibration`; the time model is `topology.bandwidth.collectives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import TypeVar

from topology.bandwidth.calibration import IN_SWITCH, IN_SWITCH_FROM_CUDA, SHARED_UPLINK, Bandwidth
from topology.bandwidth.collectives import DEFAULT_MESSAGE_BYTES, Collective, Wire, in_switch, on_ring
from topology.bandwidth.hops import DEFAULT_PEER_LEVEL, link_ratio, switch_ratio, widest_by_point
from topology.bandwidth.rings import MAX_STEPS, Meter, Widths, components, members_of, ring_channels
from topology.bandwidth.ties import Ties
from topology.node.graph import compute_capability, link_gb_per_s
from topology.node.links import Affinity, PciePath
from topology.node.model import NodeTopology

__all__ = ["Bandwidth", "Wiring", "predict", "ring_order"]

_AFFINITIES = tuple(Affinity)
_STEPS_PER_PLAN = 2_000_000
_STEPS_PER_SET = 200
"""At least; about a fifth of a millisecond."""

T = TypeVar("T")


class Wiring:
    """The numbers of one node's graph that predictions need, by position; built once per topology class.

    `peer_level` is NCCL's: how far apart GPUs may be to access each other over PCIe.
    """

    def __init__(self, node: NodeTopology, peer_level: PciePath = DEFAULT_PEER_LEVEL) -> None:
        ties = Ties(node, peer_level)
        numbers: dict[object, int] = {}
        alike = [numbers.setdefault(kind.identity, len(numbers)) for kind in ties.kinds]
        self.count = len(node)
        self.rate = [link_gb_per_s(gpu) for gpu in node.gpus]
        self.capability = [compute_capability(gpu) or (0, 0) for gpu in node.gpus]
        self.generation = [major for major, _ in self.capability]
        self.switch = [gpu.switch_links for gpu in node.gpus]
        self.may_reduce_in_switch = _may_reduce_in_switch(node.cuda_version)
        self.ties = _table(ties, alike)
        """Equal numbers for equal ties between two positions."""
        self.direct = _table(ties, [kind.direct for kind in ties.kinds])
        self._direct_masks = _masks(_table(ties, [kind.direct > 0 for kind in ties.kinds]))
        self._has_direct = any(self._direct_masks)
        self._link_masks = _masks(_table(ties, [kind.linked for kind in ties.kinds]))
        self.alone = _table(ties, [kind.alone for kind in ties.kinds])
        """Rate of every hop when exactly these two GPUs take part; `None` from a position to itself."""
        self.hop_gb_per_s = _table(ties, [kind.hop.point if kind.hop else 0.0 for kind in ties.kinds])
        self.meter = Meter()
        """What predictions have cost so far."""
        self.hops = Widths(self.hop_gb_per_s, self.meter)
        self._intervals = widest_by_point(kind.hop for kind in ties.kinds if kind.hop)
        self._uplinks = ties.uplinks()
        self.affinities = Widths(_table(ties, [-kind.affinity.distance for kind in ties.kinds]), self.meter)
        self._on_ring: dict[tuple[Bandwidth, Wire, int, int, int, Collective], Bandwidth] = {}

    def narrowest_hop(self, members: int) -> Bandwidth:
        """Return the rate of the narrowest hop of that ring over the members whose narrowest hop is widest.

        GPUs below one PCIe switch that must go through the host share the wire above it. Where that they must is only supposed,
        it lowers the low end alone: nearer GPUs are not shunned on a supposition.
        """
        if members.bit_count() == 2:
            i, j = members_of(members)
            alone = self.alone[i][j]
            assert alone is not None
            found = alone
        else:
            found = self._intervals[self.hops.bottleneck(members, self.max_steps(members))]
            if self._leaves_islands_twice(members):
                found = Bandwidth(found.low, found.point, 2 * found.high)
        for uplink in self._uplinks:
            below = members & uplink.members
            supposed = SHARED_UPLINK * uplink.gb_per_s / max(components(uplink.joined, below), 1)
            known = components(uplink.perhaps, below)
            if known > 1:
                wire = uplink.gb_per_s / known
                found = Bandwidth(found.low, min(found.point, SHARED_UPLINK * wire), min(found.high, wire))
            found = Bandwidth(min(found.low, supposed), found.point, found.high)
        return found

    def _leaves_islands_twice(self, members: int) -> bool:
        """Whether rings in opposite directions leave the NVLink islands by different wires.

        Between pairs of four bridged A100 NCCL reached 31 GB/s, and one wire has 24 (Azure NC96ads v4, two reports). The point
        stays where one wire puts it until another kind of machine shows it.
        """
        split = all(self._link_masks[i] & members for i in members_of(members))
        return split and components(self._link_masks, members) > 1

    def ring(self, rate: Bandwidth, wire: Wire, members: int, message_bytes: int, collective: Collective) -> Bandwidth:
        """Return what a ring at this rate achieves; remembered, because most sets of a machine run at few rates."""
        generation = min(self.generation[i] for i in members_of(members))
        key = rate, wire, generation, members.bit_count(), message_bytes, collective
        if key not in self._on_ring:
            self._on_ring[key] = _rounded(on_ring(*key))
        return self._on_ring[key]

    def max_steps(self, members: int) -> int:
        """Return how long the search over one set may take, so that a plan over all sets of its size stays bounded."""
        return max(min(_STEPS_PER_PLAN // comb(self.count, members.bit_count()), MAX_STEPS), _STEPS_PER_SET)

    def on_switch(self, members: int) -> bool:
        """Whether each of the GPUs has links to an NVSwitch, and reaches all others over NVLinks."""
        return all(self.switch[i] and not members & ~(self._link_masks[i] | 1 << i) for i in members_of(members))

    def ring_channels(self, members: int) -> int:
        """Return how many one-link-wide channels the rings over direct links carry at once."""
        if not self._has_direct:
            return 0
        return ring_channels(self.direct, members, self.max_steps(members), self.meter, self._direct_masks)


def predict(
    wiring: Wiring,
    members: int,
    message_bytes: int = DEFAULT_MESSAGE_BYTES,
    collective: Collective = Collective.ALL_REDUCE,
    reduce_in_switch: bool | None = None,
) -> tuple[Bandwidth, Affinity]:
    """Return the bandwidth of two or more GPUs (bit mask) and how near their best ring's farthest hop is.

    Exact with respect to the model. So it never rises when a link is removed, never falls with the message, and does not
    depend on the order of the GPUs. `reduce_in_switch` lets few GPUs use NVLS too, or forbids it; `None` leaves it to
    NCCL. NCCL uses it by default, but a setting, a virtual machine or confidential computing may forbid it. So the low
    end is then that of a ring.
    """
    over_hops = wiring.ring(wiring.narrowest_hop(members), Wire.PCIE, members, message_bytes, collective)
    on_links = [
        found
        for found in (
            _over_switch(wiring, members, message_bytes, collective, reduce_in_switch),
            _over_direct_links(wiring, members, message_bytes, collective),
        )
        if found is not None
    ]
    best = max(*on_links, over_hops, key=lambda found: found.point) if on_links else over_hops
    affinity = (
        Affinity.NVLINK
        if on_links
        else _AFFINITIES[-int(wiring.affinities.bottleneck(members, wiring.max_steps(members)))]
    )
    return best, affinity


def ring_order(wiring: Wiring, members: int) -> tuple[int, ...]:
    """Return the members as neighbours on the ring that a job should use."""
    return wiring.hops.widest_ring(members)


def _over_switch(
    wiring: Wiring, members: int, message_bytes: int, collective: Collective, reduce_in_switch: bool | None
) -> Bandwidth | None:
    """On an NVSwitch a ring's rate depends neither on which GPUs take part nor on how many; in-switch reduction does."""
    vertices = members_of(members)
    if not wiring.on_switch(members):
        return None
    rate = min(wiring.switch[i] for i in vertices) * min(wiring.rate[i] for i in vertices)
    generation = min(wiring.generation[i] for i in vertices)
    ring = wiring.ring(switch_ratio(generation).of(rate), Wire.NVLINK, members, message_bytes, collective)
    how = IN_SWITCH.get(generation)
    if how is None or collective is not Collective.ALL_REDUCE or reduce_in_switch is False:
        return ring
    if not reduce_in_switch and (len(vertices) < how.fewest or not wiring.may_reduce_in_switch):
        return ring
    reduced = _rounded(in_switch(rate, how, len(vertices), message_bytes))
    if reduced.point <= ring.point:
        return ring
    return reduced if reduce_in_switch else Bandwidth(min(ring.low, reduced.low), reduced.point, reduced.high)


def _may_reduce_in_switch(cuda_version: str | None) -> bool:
    """Whether the driver, if it is known, is new enough for NVLS."""
    parts = (cuda_version or "").split(".")
    if not all(part.isdecimal() and part.isascii() for part in parts):
        return True
    return tuple(map(int, parts)) >= IN_SWITCH_FROM_CUDA


def _over_direct_links(wiring: Wiring, members: int, message_bytes: int, collective: Collective) -> Bandwidth | None:
    channels = wiring.ring_channels(members)
    if not channels:
        return None
    vertices = members_of(members)
    ratio = link_ratio(min(wiring.capability[i] for i in vertices))
    rate = ratio.of(channels * min(wiring.rate[i] for i in vertices))
    return wiring.ring(rate, Wire.NVLINK, members, message_bytes, collective)


def _table(ties: Ties, by_kind: Sequence[T]) -> list[list[T]]:
    return [[by_kind[kind] for kind in row] for row in ties.between]


def _masks(table: Sequence[Sequence[bool]]) -> list[int]:
    return [sum(1 << j for j, is_set in enumerate(row) if is_set) for row in table]


def _rounded(found: Bandwidth) -> Bandwidth:
    """To six significant digits: what two computers agree on."""
    return Bandwidth(float(f"{found.low:.6g}"), float(f"{found.point:.6g}"), float(f"{found.high:.6g}"))
