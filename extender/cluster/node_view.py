"""What one node has to give: derived whole from the node, its claims and its pods, and never edited.

A GPU is free when it is healthy, is no MIG parent, and every claim on it is proven dead. Neither an unplanned container
nor a ResourceClaim may hold it. Two live pods with one GPU are a conflict: such a GPU is not free before both are gone. A
pod that holds a device holds its silicon (`Silicon`): the GPU of a slice and the slices of a GPU. That includes devices
that are published no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from extender.cluster.caches.publishers import recorded_gpus
from extender.cluster.candidates.holds import NOTHING as NOTHING_HELD
from extender.cluster.candidates.holds import Held
from extender.cluster.candidates.shape import Shape
from extender.cluster.masks import (
    ExclusionMasks,
    chosen_blindly,
    excluded_devices,
    mask_of,
    unfit_devices,
)
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.health_signs import Sign
from extender.cluster.objects.kinds import Node
from extender.cluster.objects.node_devices import NOTHING, NodeDevices
from extender.cluster.objects.payloads import NodePayloads
from extender.cluster.ownership.conflicts import hidden_gib
from extender.cluster.ownership.holdings import Holding
from extender.cluster.ownership.standing import Standing
from extender.cluster.ownership.takers import Use
from extender.cluster.ownership.unledgered import unledgered_of
from extender.cluster.shares import shares_of
from topology.annotations.records import Claim, Holder, Sharer
from topology.node.silicon import Silicon
from topology.node.slices import MAX_DEVICES
from topology.node.status import Mode
from topology.placement.decide import Decision
from topology.placement.rails import NO_RAILS, Rails
from topology.placement.verdict import ASK_WHO, UNDECIDED, UNKNOWN_GPUS, Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest
from topology.value.fragmentation import DemandProfile

Owner: TypeAlias = str | tuple[str, str]
"""The UID of a pod; of one whom only the agent saw its namespace and name."""
_Devices: TypeAlias = dict[Owner, set[str]]
_Masks: TypeAlias = dict[Owner, int]


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as of one moment. Masks are over positions: bit i stands for `devices[i]`."""

    node: Node
    payloads: NodePayloads
    uuids: tuple[str, ...]
    """Of its GPUs."""
    devices: tuple[str, ...]
    """UUIDs of what pods can get: the GPUs, then the MIG slices."""
    shape: Shape
    """As a pod finds it that has no claim here."""
    usable: int
    """GPUs and slices that nothing but a claim keeps from being free."""
    fit: int
    """GPUs that are healthy, whole, left to us by DRA and free of processes that no container explains, whoever holds them."""
    doubtful: int
    """GPUs that pods get last among equals, free or not."""
    claims: tuple[tuple[Claim, Standing], ...]
    """The ledger's."""
    holders: Mapping[str, Holder]
    """GPU → whom the agent saw with it; of one that is shared the first of them."""
    sharers: Mapping[str, tuple[Sharer, ...]]
    """GPU that the agent calls shared → all who still have shares of it, as far as it saw them."""
    uses: Mapping[str, Use]
    """GPU → what is taken of it, of those of which somebody has a share."""
    holdings: tuple[Holding, ...]
    """Of the live pods that are bound here, by UID."""
    conflicts: Mapping[str, tuple[GpuPod, ...]]
    """GPUs that live pods hold who cannot have one together, and which pods; nothing of it is free while that is so."""
    is_broken: bool
    """The ledger is missing, cannot be read or was changed by somebody else, and nothing may rest on it."""
    is_new: bool
    """There is no ledger, and as far as is known there never was one."""
    silicon: Silicon
    """Which devices are of one GPU, also those that are not published any more."""
    signs: tuple[Sign, ...] = ()
    """What other health agents say of its GPUs, what closes it first."""
    dra: NodeDevices = NOTHING
    """What DRA has to say of its GPUs."""
    foreign: frozenset[str] = frozenset()
    """GPUs with processes that no container explains."""
    not_owned: frozenset[str] = frozenset()
    """GPUs that it publishes, and another node may own."""
    set_aside: str | None = None
    """Why pods that tolerate no special taint do not go there; what is free there is counted apart."""
    by_claim: bool = False
    """Its GPUs are for pods that request them by ResourceClaims."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def is_open(self) -> bool:
        """Whether what is free there counts as free."""
        return self.shape.closed is None and self.set_aside is None

    @property
    def plugin_chooses(self) -> bool:
        """Whether NVIDIA's device plugin chooses the GPUs there, as the node's agent says."""
        return plugin_chooses(self.payloads, by_claim=self.by_claim)

    @property
    def settled(self) -> bool:
        """Whether every claim belongs to a pod that runs here: nothing to release, nothing to find out."""
        return all(standing is Standing.HELD for _, standing in self.claims)

    @property
    def is_ledger_known(self) -> bool:
        """Whether the ledger can be read as it is now, and may be written: else what is known of it is older."""
        return not self.is_broken and self.payloads.ledger.problem is None

    @property
    def owned_gpus(self) -> tuple[str, ...] | None:
        """The GPUs that the ledger is to record; `None`: nothing, as long as the topology is not known."""
        recorded = recorded_gpus(self.payloads)
        if self.payloads.topology.value is None:
            return self.payloads.ledger.value.gpus if self.payloads.ledger.value else None
        published = (uuid for uuid in self.uuids if uuid not in self.not_owned)
        return tuple(sorted({*published, *recorded}))[:MAX_DEVICES]

    @property
    def is_unrecorded(self) -> bool:
        """Whether the ledger does not record the GPUs that the node owns."""
        ledger = self.payloads.ledger.value
        if ledger is None or not self.is_ledger_known or self.payloads.defect is not None:
            return False
        if ledger.gpus is not None and set(ledger.gpus) == set(self.uuids):
            return False  # so it is on nearly all nodes
        return self.owned_gpus != ledger.gpus

    @property
    def is_amiss(self) -> bool:
        """Whether the ledger, or the record of a pod, does not say what is."""
        return self.is_broken or not all(
            held.is_settled and not held.outdates_record and not held.is_elsewhere for held in self.holdings
        )

    @property
    def unledgered(self) -> tuple[Claim, ...]:
        """Return a claim for each of the node's GPUs, or share of one, that is held without a claim."""
        claims = unledgered_of(self.claims, self.holdings, self.holders, self.sharers)
        return tuple(claim for claim in claims if self.has_devices((claim.gpu,)))

    @property
    def left_to_dra(self) -> frozenset[str]:
        """GPUs that ResourceClaims hold, and all slices of these."""
        return self._named(self.excluded_by(self.dra.held)) if self.dra.held else frozenset()

    def claims_on(self, device: str) -> tuple[str, ...]:
        """Name the ResourceClaims that hold a device, a part of it, or what excludes it."""
        holding = (claims for held, claims in self.dra.held.items() if device in self.silicon.excluded_by((held,)))
        return tuple(sorted({name for claims in holding for name in claims}))

    @property
    def disputed(self) -> frozenset[str]:
        """What pods have from a device plugin, or are promised, and a ResourceClaim holds as well, or another pod uses by DRA."""
        if not self.dra.held and not self.dra.unexplained:
            return frozenset()
        owners: dict[str, set[tuple[str, str]]] = {}
        for gpu, owner in self._owners():
            owners.setdefault(gpu, set()).add(owner)
        by_claim = self.left_to_dra & (owners.keys() | self._named(self.excluded_by(owners.keys() - set(self.devices))))
        users = {gpu: {(user.namespace, user.name) for user in of} for gpu, of in self.dra.unexplained.items()}
        return by_claim.union(gpu for gpu in owners.keys() & users.keys() if len(owners[gpu] | users[gpu]) > 1)

    def owners_of(self, gpu: str) -> tuple[str, ...]:
        """Name all who have a GPU that is not theirs alone: pods, the first of its ResourceClaims, and users of none."""
        pods = [pod.key for pod in self.conflicts.get(gpu, ())]
        pods += [owner for owned, owner in self._owners() if owned == gpu]
        pods += [(user.namespace, user.name) for user in self.dra.unexplained.get(gpu, ())]
        claims = [f"ResourceClaim {name}" for name in self.claims_on(gpu)[:1]]
        return *dict.fromkeys(map("/".join, pods)), *claims

    def _owners(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yield the GPUs that pods are promised, or have from a device plugin, each with the pod's namespace and name."""
        for claim, standing in self.claims:
            if standing is not Standing.FREE:
                yield claim.gpu, (claim.namespace, claim.name)
        for gpu, holder in self.holders.items():
            yield gpu, (holder.namespace, holder.name)

    @property
    def sick(self) -> frozenset[str]:
        """GPUs and slices that are sick or cut into slices, as the agent says, or tainted by their DRA driver."""
        return self._named(unfit_devices(self.payloads) | self.excluded_by(self.dra.tainted))

    def has_devices(self, uuids: Iterable[str]) -> bool:
        """Whether all of these are GPUs or slices of the node, or may be slices of an earlier cut of its GPUs."""
        gone = set(uuids).difference(self.devices)
        return all(self.silicon.is_gone(uuid) and self.excluded_by((uuid,)) for uuid in gone)

    def excluded_by(self, devices: Iterable[str]) -> int:
        """Return what nobody else may have while somebody has these devices, published or not."""
        return excluded_devices(self.devices, self.silicon, devices)

    def nics_near(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Return the RDMA devices under the switches of these GPUs, in their order; of other nodes' GPUs nothing is known."""
        topology = self.payloads.topology.value
        return topology.nics_near(gpu for gpu in gpus if gpu in self.uuids) if topology else ()

    def claims_of(self, uid: str) -> tuple[Claim, ...]:
        """Return the claims of one pod."""
        return tuple(claim for claim, _ in self.claims if claim.uid == uid)

    def claimed_by(self, uid: str) -> int:
        """Return the same as a mask."""
        return mask_of(self.devices, (claim.gpu for claim in self.claims_of(uid)))

    def decide_for(
        self,
        uid: str,
        request: GpuRequest,
        held_for_others: Held = NOTHING_HELD,
        to_come: DemandProfile | None = None,
        rails: Rails = NO_RAILS,
    ) -> Decision:
        """Return the placement of a pod that may have claims here.

        It keeps exactly the GPUs that it has claimed, as long as they serve; else its own count among the free ones. Nothing
        is held when CPU is counted: holds expire.
        """
        own = self.claimed_by(uid)
        if request.is_share:
            if own:
                kept = self._for_shares(uid, among=own).decide(request, to_come)
                if kept is UNDECIDED or (isinstance(kept, Placement) and kept.takes_of(own) == own.bit_count()):
                    return kept
            return self._for_shares(uid, held_for_others).decide(request, to_come)
        idle = self._free_for(uid)
        if own and not own & ~idle:
            kept = self._with_free(own, own=own).decide(request, to_come, idle)
            if kept is UNDECIDED or (isinstance(kept, Placement) and len(kept.gpus) == own.bit_count()):
                return kept
        return self._beside(uid, held_for_others).decide(request, to_come, idle, rails)

    def decide_yielding(
        self,
        uid: str,
        request: GpuRequest,
        held_for_others: Held,
        to_come: DemandProfile | None = None,
        rails: Rails = NO_RAILS,
        kept: Held = NOTHING_HELD,
    ) -> Decision:
        """Return the same as if holds yielded: beside them where that fits, else beside those that never yield (`kept`)."""
        verdict = self.decide_for(uid, request, held_for_others, to_come, rails)
        if held_for_others and isinstance(verdict, Rejection):
            return self.decide_for(uid, request, kept, to_come, rails)
        return verdict

    def how_many_fit(self, uid: str, request: GpuRequest, held_for_others: Held = NOTHING_HELD) -> int:
        """Return how many pods like this one, which may have claims here, fit one after the other."""
        if request.is_share:
            return self._for_shares(uid, held_for_others).how_many_fit(request)[0]
        return self._beside(uid, held_for_others).how_many_fit(request)[0]

    def taken(self) -> _Masks:
        """Return who keeps which GPUs from being free, by UID; whom only the agent saw, by namespace and name.

        A GPU may be kept by several. Linear in GPUs, claims and pods.
        """
        return self._taken_by(self._devices_by_owner())

    def taken_across(self) -> _Masks:
        """Return the same of those GPUs alone that somebody keeps without having them, or shares of them."""
        return self._across_by(self._devices_by_owner())

    def taken_and_across(self) -> tuple[_Masks, _Masks]:
        """Return both; cheaper than one after the other."""
        owners = self._devices_by_owner()
        return self._taken_by(owners), self._across_by(owners)

    def _taken_by(self, owners: _Devices) -> _Masks:
        gpus, taken, masks = self.payloads.topology.value, {}, ExclusionMasks(self.devices, self.silicon)
        for owner, devices in owners.items():
            taken[owner] = masks.excluded(devices)
            if gpus and self.plugin_chooses:
                across = masks.across(devices)
                taken[owner] |= chosen_blindly(gpus, across & self.fit) if across else 0
        return taken

    def _across_by(self, owners: _Devices) -> _Masks:
        masks = ExclusionMasks(self.devices, self.silicon)
        by_owner = ((owner, masks.across(devices)) for owner, devices in owners.items())
        return {owner: across for owner, across in by_owner if across}

    def _devices_by_owner(self) -> _Devices:
        owners: _Devices = {}
        for claim, standing in self.claims:
            if standing is not Standing.FREE:
                owners.setdefault(claim.uid, set()).add(claim.gpu)
        for held in self.holdings:
            owners.setdefault(held.pod.uid, set()).update((*held.gpus, *held.claimed, *(held.pod.placed or ())))
        uids = {held.pod.key: held.pod.uid for held in self.holdings}
        seen = ((gpu, who) for gpu, several in self.sharers.items() for who in several)
        for gpu, who in (*self.holders.items(), *seen):
            key = who.namespace, who.name
            owners.setdefault(uids.get(key, key), set()).add(gpu)
        return owners

    def decide_on(self, held: Held, request: GpuRequest, held_for_others: Held = NOTHING_HELD) -> Decision:
        """Return the placement on these GPUs alone, of those that are free, or on exactly these shares, if they have room."""
        if request.is_share:
            shares = self.shape.shares.beside(held_for_others.gpus, held_for_others.shares)
            return replace(self.shape, shares=shares).only(held).decide(request)
        if self.shape.hidden:
            return Rejection(Reason.CLOSED, UNKNOWN_GPUS, remedy=ASK_WHO)
        return self._with_free(self.shape.free & held.gpus & ~self.shape.excluding(held_for_others.touched)).decide(
            request
        )

    def _beside(self, uid: str, held_for_others: Held) -> Shape:
        free = self._free_for(uid) & ~self.shape.excluding(held_for_others.touched)
        return self._with_free(free, self.shape.hidden, self.claimed_by(uid))

    def _free_for(self, uid: str) -> int:
        """Return what is free as a pod finds it that may have claims here."""
        if not any(claim.uid == uid for claim, _ in self.claims):
            return self.shape.free
        others = [claim for claim, standing in self.claims if standing is not Standing.FREE and claim.uid != uid]
        return self.usable & ~self.excluded_by(claim.gpu for claim in others)

    def _named(self, mask: int) -> frozenset[str]:
        return frozenset(uuid for position, uuid in enumerate(self.devices) if mask >> position & 1)

    def _for_shares(self, uid: str, held_for_others: Held = NOTHING_HELD, among: int | None = None) -> Shape:
        """Return the shape as a pod finds it that shares GPUs: what it has claimed itself counts as left."""
        shape = self.shape
        if shape.closed is None and any(claim.uid == uid for claim, _ in self.claims):
            uses = {gpu: left for gpu, use in self.uses.items() if (left := use.without((uid,)))}
            free, fit = self._free_for(uid), self.fit
            for across in self.taken_across().values():
                fit &= ~across
            shares = shares_of(self.payloads, uses, free, fit, hidden_gib(self.holdings))
            room = shape.claims_left.plus(len(self.claims_of(uid)))
            shape = replace(shape, free=free, doubtful=self.doubtful & free, shares=shares, claims_left=room)
        shares = shape.shares if among is None else shape.shares.among(among)
        free = shape.free & ~shape.excluding(held_for_others.touched)
        return replace(
            shape,
            free=free,
            doubtful=shape.doubtful & free,
            shares=shares.beside(held_for_others.gpus, held_for_others.shares),
        )

    def _with_free(self, free: int, hidden: int = 0, own: int = 0) -> Shape:
        """Return the shape with other free GPUs; the claims on `own` are replaced."""
        left = self.shape.claims_left.plus(own.bit_count()) if own else self.shape.claims_left
        return replace(self.shape, free=free, doubtful=self.doubtful & free, hidden=hidden, claims_left=left)


def plugin_chooses(payloads: NodePayloads, *, by_claim: bool) -> bool:
    """Whether NVIDIA's device plugin chooses the GPUs of a node; it has none that are for claims."""
    plugin = payloads.device_plugin
    return plugin is not None and plugin.mode is Mode.OBSERVE and not by_claim
