"""Soft holds: the GPUs, or shares of them, that a pod will probably get, kept in mind between prioritize and bind.

kube-scheduler tells nobody which node won, and filters the next pod before the first one's bind arrives. A hold steers that
next pod elsewhere. It is advice: it lives in memory, expires, is replaced by the pod's next call, and safety never rests on it.

Some holds do not yield (`gangs`). To a member of a PodGroup, those of the members that are tried with it. To every pod,
those of members that are being bound. Safety does not rest on them either, but whole groups do.

GPUs can be held for a pod that does not exist yet: the next pod of an owner with the same request (`Heir`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from topology.node.model import NodeTopology
from topology.node.slices import parts_of_gpus
from topology.placement.shares import HeldShare
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Ranked:
    """A node on which a pod fits, and what it would get there."""

    node: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Held:
    """What is kept of one node, or given back: GPUs and MIG slices, and shares of GPUs."""

    gpus: int = 0
    """As a whole; a mask over positions."""
    shares: tuple[HeldShare, ...] = ()

    @classmethod
    def of(cls, placement: Placement, request: GpuRequest) -> Held:
        """Keep what a pod with this request gets by this placement: of GPUs that it shares only its shares."""
        if placement.shares:
            return cls(shares=_shares_of(placement, request))
        return cls(sum(1 << position for position in placement.gpus))

    @classmethod
    def all_of(cls, parts: Iterable[Held]) -> Held:
        """Return all of these together; linear, which repeated additions are not."""
        gpus, shares = 0, list[HeldShare]()
        for part in parts:
            gpus |= part.gpus
            shares += part.shares
        return cls(gpus, tuple(shares))

    def gpus_on(self, node: NodeTopology) -> float:
        """Return how many of a node's GPUs that is; slices and shares are parts by memory, where the GPU's is known."""
        parts, known = parts_of_gpus(node.slices), len(node)
        slices = sum(part for i, part in enumerate(parts, known) if self.gpus >> i & 1)
        shares = sum(gib * _GIB / (node.gpus[i].memory_bytes or gib * _GIB) for i, gib, _ in self.shares if i < known)
        return (self.gpus & (1 << known) - 1).bit_count() + slices + shares

    @property
    def touched(self) -> int:
        """The GPUs of which anything is kept."""
        return self.gpus | sum({1 << position for position, _, _ in self.shares} if self.shares else ())

    def __add__(self, other: Held) -> Held:
        return Held(self.gpus | other.gpus, self.shares + other.shares)

    def __bool__(self) -> bool:
        return bool(self.gpus or self.shares)


NOTHING: Final = Held()


@dataclass(frozen=True, slots=True)
class Hold:
    """The GPUs of one node that are kept for one pod."""

    node: str
    gpus: int
    """Mask over positions."""
    expires: float
    """Monotonic seconds."""
    value_lost: float | None = None
    """What the decision for these GPUs said that the pods to come lose by it, if that is known."""
    best: tuple[Ranked, ...] = ()
    """The best nodes of the call that held them, two at most; kube-scheduler may choose another one."""
    shares: tuple[HeldShare, ...] = ()
    """Where only these are kept of the GPUs; empty: all of them."""
    is_firm: bool = False
    """Whether it yields to nobody."""

    @property
    def held(self) -> Held:
        """What is kept of the node."""
        return Held(shares=self.shares) if self.shares else Held(self.gpus)

    @classmethod
    def of(
        cls, node: str, placement: Placement, request: GpuRequest, expires: float, best: tuple[Ranked, ...] = ()
    ) -> Hold:
        """Hold what a pod with this request gets by this placement."""
        gpus = sum(1 << position for position in placement.gpus)
        return cls(node, gpus, expires, placement.value_lost, best, _shares_of(placement, request))


@dataclass(frozen=True, slots=True)
class Heir:
    """Which pod gets what is held under another key: the next one of an owner that requests the same."""

    owner: str
    """As `successors_of` returns it."""
    request: GpuRequest
    cpu_milli: int
    memory_bytes: int
    not_for: frozenset[str] = frozenset()
    """UIDs of the owner's pods that wait already."""


class Holds:
    """At most one hold per pod, by UID; a pod that does not exist yet has a key of its caller's instead."""

    def __init__(self) -> None:
        self._holds: dict[str, Hold] = {}
        self._heirs: dict[str, Heir] = {}
        """By key."""

    def put(self, uid: str, hold: Hold) -> None:
        """Hold these GPUs for the pod, instead of any others."""
        self._holds.pop(uid, None)
        self._holds[uid] = hold

    def put_back(self, uid: str, hold: Hold | None) -> None:
        """Hold for the pod what was held before: this, or nothing."""
        self.release(uid)
        if hold is not None:
            self.put(uid, hold)

    def release(self, uid: str) -> None:
        """Hold nothing for the pod any more."""
        self._holds.pop(uid, None)
        self._heirs.pop(uid, None)

    def bequeath(self, key: str, heir: Heir) -> None:
        """Let the first pod that is such an heir have what is held under a key."""
        if key in self._holds:
            self._heirs[key] = heir

    def revoke(self, key: str) -> None:
        """Let no pod have it, for now."""
        self._heirs.pop(key, None)

    def awaits(self, owner: str) -> bool:
        """Whether anything is held for the next pod of an owner."""
        return any(heir.owner == owner for heir in self._heirs.values())

    def inherit(self, uid: str, pod: Heir) -> bool:
        """Hold for a new pod what is held for an heir like it; returns whether anything is."""
        if uid in self._holds:
            return False
        for key, heir in self._heirs.items():
            if replace(heir, not_for=pod.not_for) == pod and uid not in heir.not_for and key in self._holds:
                self._holds[uid] = self._holds.pop(key)
                del self._heirs[key]
                return True
        return False

    def firm_of(self, uid: str, now: float) -> Hold | None:
        """Return what is held for a pod and yields to nobody."""
        hold = self._holds.get(uid)
        return hold if hold and hold.is_firm and hold.expires > now else None

    def own(self, uid: str, node: str, now: float) -> int:
        """Return the GPUs of `node` of which anything is held for the pod."""
        return self.of(uid, node, now).touched

    def of(self, uid: str, node: str, now: float) -> Held:
        """Return what is held of `node` for the pod."""
        hold = self._holds.get(uid)
        return hold.held if hold and hold.node == node and hold.expires > now else NOTHING

    def value_lost(self, uid: str, node: str, gpus: int) -> float | None:
        """Return what was said that the pods to come lose by exactly these GPUs, if they are held for the pod."""
        hold = self._holds.get(uid)
        return hold.value_lost if hold and (hold.node, hold.gpus) == (node, gpus) else None

    def alternative(self, uid: str, node: str) -> Ranked | None:
        """Return the best node but `node` of the call that held GPUs for the pod last, if that is known."""
        hold = self._holds.get(uid)
        return next((ranked for ranked in hold.best if ranked.node != node), None) if hold else None

    def places(self, now: float) -> dict[str, str]:
        """Return UID → node, for all pods that something is held for."""
        self._expire(now)
        return {uid: hold.node for uid, hold in self._holds.items()}

    def others(self, uid: str, now: float) -> dict[str, Held]:
        """Return node → what is held there for other pods."""
        return self.besides((uid,), now)

    def besides(self, uids: Collection[str], now: float) -> dict[str, Held]:
        """Return node → what is held there, but for these pods."""
        self._expire(now)
        return _by_node(hold for owner, hold in self._holds.items() if owner not in uids)

    def kept(self, uid: str, now: float, beside: Collection[str] = ()) -> dict[str, Held]:
        """Return node → what is held there for other pods and does not yield; `beside`: the pods whose holds do not, either."""
        self._expire(now)
        return _by_node(
            hold for owner, hold in self._holds.items() if owner != uid and (hold.is_firm or owner in beside)
        )

    def firm(self, now: float) -> dict[str, dict[str, Hold]]:
        """Return node → UID → what is held there and yields to nobody."""
        self._expire(now)
        firm = dict[str, dict[str, Hold]]()
        for owner, hold in self._holds.items():
            if hold.is_firm:
                firm.setdefault(hold.node, {})[owner] = hold
        return firm

    def void(self, uids: Iterable[str]) -> None:
        """Hold nothing for these pods any more, unless they are being bound."""
        for uid in uids:
            if uid in self._holds and not self._holds[uid].is_firm:
                del self._holds[uid]

    def __len__(self) -> int:
        return len(self._holds)

    def _expire(self, now: float) -> None:
        for expired in [key for key, hold in self._holds.items() if hold.expires <= now]:
            self.release(expired)


def _by_node(holds: Iterable[Hold]) -> dict[str, Held]:
    gpus, shares = defaultdict[str, int](int), dict[str, list[HeldShare]]()
    for hold in holds:
        gpus[hold.node] |= 0 if hold.shares else hold.gpus
        shares.setdefault(hold.node, []).extend(hold.shares)
    return {node: Held(gpus[node], tuple(held)) for node, held in shares.items()}


def _shares_of(placement: Placement, request: GpuRequest) -> tuple[HeldShare, ...]:
    places = zip(placement.shares, request.memory_gib, strict=True)
    return tuple((position, gib, request.sharing_class) for position, gib in places)
