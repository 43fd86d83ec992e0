"""How many NVLinks join two GPUs, as `nvidia-smi topo -m` counts them, and why a pair is worth less than its wires.

A direct link is counted where its far end is the other GPU. A link to an NVSwitch reaches every GPU behind the same
fabric, so those are counted per GPU. They count only once the fabric has taken the GPU in: the links alone would promise
too much. Either way NVML must not deny peer access. What NVML does not say is never taken for "yes".

Sources: NCCL's NVLink discovery (far ends by PCI id, then class; an unreadable far end is an NVSwitch), the NVML reference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.gpus.facts import (
    Answer,
    FabricState,
    FarEnd,
    Gap,
    GpuFacts,
    Known,
    Missing,
    NvLink,
    P2pStatus,
    PairFacts,
    value_of,
)

MAX_LINKS = 64
"""More than any GPU has: stands for "as many as you like" where a GPU's own view is missing."""


class Downgrade(StrEnum):
    """The whole vocabulary of `Link.reason`."""

    MIG = "mig enabled"
    """CUDA has no peer access between MIG instances."""
    FABRIC_NOT_READY = "fabric not ready"
    FABRIC_FAILED = "fabric failed"
    """Registered with the NVLink fabric, but not successfully."""
    FABRIC_UNHEALTHY = "fabric unhealthy"
    """The fabric says itself that it does not carry this GPU's traffic for certain; alone the GPU works."""
    CHIPSET = "p2p: chipset not supported"
    GPU = "p2p: gpu not supported"
    TOPOLOGY = "p2p: topology not supported"
    REGKEY = "p2p: disabled by registry key"
    NOT_SUPPORTED = "p2p: not supported"
    UNKNOWN = "p2p: unknown"
    LINK_DOWN = "nvlink down"
    NVML = "nvml error"
    """A call that had to say yes failed."""


_DENIALS = {
    P2pStatus.CHIPSET_NOT_SUPPORTED: Downgrade.CHIPSET,
    P2pStatus.GPU_NOT_SUPPORTED: Downgrade.GPU,
    P2pStatus.TOPOLOGY_NOT_SUPPORTED: Downgrade.TOPOLOGY,
    P2pStatus.DISABLED_BY_REGKEY: Downgrade.REGKEY,
    P2pStatus.NOT_SUPPORTED: Downgrade.NOT_SUPPORTED,
}


@dataclass(frozen=True, slots=True)
class Joint:
    """What two GPUs may use of the wires between them, beside any NVSwitch."""

    nvlinks: int = 0
    p2p: bool | None = None
    reason: Downgrade | None = None


@dataclass(frozen=True, slots=True)
class DeadLink:
    """A link that is up on another GPU of the same model, and down on this one."""

    gpu: int
    """Index."""
    link: int
    to_switch: bool


@dataclass(frozen=True, slots=True)
class NvlinkWiring:
    """All NVLinks of a node; indexes are NVML's."""

    switch_links: Mapping[int, int]
    joints: Mapping[tuple[int, int], Joint]
    dead: tuple[DeadLink, ...]
    """By GPU and link."""


@dataclass(slots=True)
class _Ends:
    """Where one GPU's active links go."""

    direct: Counter[int] = field(default_factory=Counter)
    switch: int = 0
    unknown_peer: int = 0
    """Links that may lead anywhere: counted from the other side if it knows better."""


def wiring(
    gpus: Mapping[int, GpuFacts],
    pairs: Mapping[tuple[int, int], PairFacts],
    pci_class: Callable[[str], int | None],
) -> NvlinkWiring:
    """Return how the GPUs are joined.

    Args:
        gpus: By index; GPUs that are lost may be among them.
        pairs: By indexes (a, b), a < b; of at least all pairs of `gpus`.
        pci_class: The 24-bit class of a PCI address, where the kernel knows it.
    """
    return _Wires(gpus, pairs, pci_class).wiring()


class _Wires:
    """The links of all GPUs by where they go, and what stands against using them."""

    def __init__(
        self,
        gpus: Mapping[int, GpuFacts],
        pairs: Mapping[tuple[int, int], PairFacts],
        pci_class: Callable[[str], int | None],
    ) -> None:
        self._gpus = gpus
        self._pairs = pairs
        self._pci_class = pci_class
        self._addresses = {address: index for index, gpu in gpus.items() if (address := value_of(gpu.pci))}
        self._ends = {index: self._ends_of(gpu) for index, gpu in gpus.items()}
        self._fabric = {index: _fabric_downgrade(gpu) for index, gpu in gpus.items()}
        self._switch_links = {index: self._usable_switch_links(index) for index in gpus}
        self._dead = self._dead_links()

    def wiring(self) -> NvlinkWiring:
        pairs = [pair for pair in self._pairs if self._gpus.keys() >= set(pair)]
        return NvlinkWiring(self._switch_links, {(a, b): self._joint(a, b) for a, b in pairs}, self._dead)

    def _ends_of(self, gpu: GpuFacts) -> _Ends:
        ends = _Ends()
        if isinstance(gpu.nvlinks, Missing):
            ends.unknown_peer = 0 if gpu.nvlinks.gap is Gap.UNSUPPORTED else MAX_LINKS
            return ends
        for link in gpu.nvlinks.value:
            if isinstance(link.active, Missing):
                ends.unknown_peer += 1
            elif link.active.value:
                self._count(link, ends)
        return ends

    def _count(self, link: NvLink, ends: _Ends) -> None:
        if link.remote_pci and (peer := self._addresses.get(link.remote_pci)) is not None:
            ends.direct[peer] += 1
            return
        far_end = value_of(link.far_end) or FarEnd.UNKNOWN
        if far_end is FarEnd.UNKNOWN and link.remote_pci:
            far_end = _far_end_of_class(self._pci_class(link.remote_pci))
        if far_end is FarEnd.GPU:
            ends.unknown_peer += link.remote_pci is None  # with an address it is a GPU that this machine does not see
        elif far_end is not FarEnd.BRIDGE:
            ends.switch += 1
            ends.unknown_peer += far_end is FarEnd.UNKNOWN

    def _usable_switch_links(self, index: int) -> int:
        """Count the links to a switch if the fabric is ready, and NVLink works to at least one other GPU behind a switch.

        A GPU that reaches none of the others is off the fabric, whatever its links say.
        """
        if self._fabric[index]:
            return 0
        others = [peer for peer in self._gpus if peer != index and self._ends[peer].switch]
        denials = [_denial(self._pairs[min(index, peer), max(index, peer)].nvlink) for peer in others]
        return 0 if denials and all(denials) else self._ends[index].switch

    def _joint(self, a: int, b: int) -> Joint:
        pair, direct = self._pairs[a, b], self._direct(a, b)
        if value_of(self._gpus[a].mig_enabled) or value_of(self._gpus[b].mig_enabled):
            return Joint(direct, False, Downgrade.MIG)
        switched = bool(self._ends[a].switch and self._ends[b].switch)
        denial = _denial(pair.nvlink) if direct or switched else None
        fabric = (self._fabric[a] or self._fabric[b]) if switched else None
        down = Downgrade.LINK_DOWN if self._lacks_links(a, b, direct) else None
        # Links through a switch belong to a GPU and not to a pair: only "no peer access" can take them from one pair.
        off_switch = denial and self._switch_links[a] and self._switch_links[b]
        return Joint(
            nvlinks=0 if denial else direct,
            p2p=False if off_switch else _peer_access(pair),
            reason=fabric or denial or _peer_denial(pair) or down,
        )

    def _direct(self, a: int, b: int) -> int:
        """Count from both sides: as many as either sees for certain, as few as either could have."""
        ends_a, ends_b = self._ends[a], self._ends[b]
        seen_by_a, seen_by_b = ends_a.direct[b], ends_b.direct[a]
        return min(max(seen_by_a, seen_by_b), seen_by_a + ends_a.unknown_peer, seen_by_b + ends_b.unknown_peer)

    def _lacks_links(self, a: int, b: int, direct: int) -> bool:
        off_switch = {link.gpu for link in self._dead if link.to_switch}
        off_peers = {link.gpu for link in self._dead if not link.to_switch}
        behind_switch = all(self._ends[index].switch or index in off_switch for index in (a, b))
        return bool((behind_switch and off_switch & {a, b}) or (direct and off_peers >= {a, b}))

    def _dead_links(self) -> tuple[DeadLink, ...]:
        """Find links that are down here and up on others of the model; a card with all links down may simply lack its bridge."""
        up: defaultdict[tuple[str | None, int], list[int]] = defaultdict(list)
        down: list[tuple[int, int]] = []
        for index, gpu in self._gpus.items():
            for link in value_of(gpu.nvlinks) or ():
                if link.active == Known(True):
                    up[value_of(gpu.model), link.number].append(index)
                elif link.active == Known(False):
                    down.append((index, link.number))
        dead = []
        for index, number in down:
            others = up.get((value_of(self._gpus[index].model), number), [])
            to_switch = any(self._ends[peer].switch for peer in others)
            if others and (to_switch or self._ends[index].direct):
                dead.append(DeadLink(index, number, to_switch))
        return tuple(dead)


def _far_end_of_class(pci_class: int | None) -> FarEnd:
    if pci_class is None:
        return FarEnd.UNKNOWN
    if pci_class >> 16 == 0x03:  # display controller
        return FarEnd.GPU
    return FarEnd.BRIDGE if pci_class == 0x068001 else FarEnd.SWITCH


def _fabric_downgrade(gpu: GpuFacts) -> Downgrade | None:
    if isinstance(gpu.fabric, Missing):
        return None if gpu.fabric.gap is Gap.UNSUPPORTED else Downgrade.NVML
    if gpu.fabric.value.state is FabricState.NONE:
        return None
    if gpu.fabric.value.state is not FabricState.COMPLETED:
        return Downgrade.FABRIC_NOT_READY
    if gpu.fabric.value.status != "SUCCESS":
        return Downgrade.FABRIC_FAILED
    return Downgrade.FABRIC_UNHEALTHY if gpu.fabric.value.cuts_off else None


def _denial(answer: Answer[P2pStatus]) -> Downgrade | None:
    """Why NVML does not say yes; a driver too old to be asked does not say no."""
    if isinstance(answer, Missing):
        return None if answer.gap is Gap.UNSUPPORTED else Downgrade.NVML
    return None if answer.value is P2pStatus.OK else _DENIALS.get(answer.value, Downgrade.UNKNOWN)


def _peer_access(pair: PairFacts) -> bool | None:
    statuses = [value_of(pair.read), value_of(pair.write)]
    if any(status in _DENIALS for status in statuses):
        return False
    return True if all(status is P2pStatus.OK for status in statuses) else None


def _peer_denial(pair: PairFacts) -> Downgrade | None:
    denials = (_DENIALS.get(status) for answer in (pair.read, pair.write) if (status := value_of(answer)))
    return next((denial for denial in denials if denial), None)
