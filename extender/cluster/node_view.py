"""What one node has to give: derived whole from the node, its claims and its pods, and never edited.

A GPU is free when it is healthy and no MIG parent, when no container holds it that we did not plan, and when every claim on it
is proven dead. Two live pods with one GPU are a conflict: such a GPU is not free before both are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from extender.cluster.objects import Node
from extender.cluster.payloads import NodePayloads
from extender.cluster.pods import GpuPod, claims_for, read_placement
from extender.cluster.standing import Standing
from topology.placement import Placement, Reason, Rejection, TopologyClass, plan
from topology.records import Claim, Holder
from topology.request import GpuRequest

UNKNOWN_GPUS = "pods without a placement record hold unknown GPUs"


@dataclass(frozen=True, slots=True)
class Shape:
    """All that decides a verdict: to filter and prioritize, nodes of one shape are one node."""

    topology_class: TopologyClass | None
    free: int
    """Mask over positions."""
    closed: str | None = None
    """Why no GPU of the node may be given away."""

    def plan(self, wish: GpuRequest) -> Placement | Rejection:
        """Return the best placement on the free GPUs, or why there is none; memoised by the class."""
        if self.closed is not None or self.topology_class is None:
            return Rejection(Reason.CLOSED, self.closed or "no GPU topology is published")
        return plan(self.topology_class, self.free, wish)


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as of one moment. Masks are over positions: bit i stands for `uuids[i]`."""

    node: Node
    payloads: NodePayloads
    uuids: tuple[str, ...]
    shape: Shape
    """As a pod finds it that has no claim here."""
    usable: int
    """GPUs that nothing but a claim keeps from being free."""
    claims: tuple[tuple[Claim, Standing], ...]
    """The ledger's."""
    unledgered: tuple[Claim, ...]
    """What live pods hold by their placement records and the ledger does not know of."""
    conflicts: frozenset[str]
    """UUIDs of GPUs that two live pods hold."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def settled(self) -> bool:
        """Whether every claim belongs to a pod that runs here: nothing to release, nothing to find out."""
        return all(standing is Standing.HELD for _, standing in self.claims)

    def claims_of(self, uid: str) -> tuple[Claim, ...]:
        """Return the claims of one pod."""
        return tuple(claim for claim, _ in self.claims if claim.uid == uid)

    def plan_for(self, uid: str, wish: GpuRequest, held_for_others: int = 0) -> Placement | Rejection:
        """Return the placement of a pod that may have claims here.

        It keeps exactly the GPUs that it has claimed, as long as they serve; else its own count among the free ones.
        """
        own = mask_of(self.uuids, (claim.gpu for claim in self.claims_of(uid)))
        if own and not own & ~self.usable:
            kept = self._with_free(own).plan(wish)
            if isinstance(kept, Placement) and len(kept.gpus) == own.bit_count():
                return kept
        return self._with_free((self.shape.free | own & self.usable) & ~held_for_others).plan(wish)

    def plan_on(self, gpus: int, wish: GpuRequest) -> Placement | Rejection:
        """Return the placement on these GPUs of the free ones alone."""
        return self._with_free(self.shape.free & gpus).plan(wish)

    def _with_free(self, free: int) -> Shape:
        return Shape(self.shape.topology_class, free, self.shape.closed)


def mask_of(known: tuple[str, ...], uuids: Iterable[str]) -> int:
    """Return the mask of `uuids` over `known`, with one bit more when there are any that are not known.

    >>> mask_of(("a", "b", "c"), ["c", "a"]), mask_of(("a", "b", "c"), ["x"])
    (5, 8)
    """
    wanted = frozenset(uuids)
    mask = sum(1 << position for position, uuid in enumerate(known) if uuid in wanted)
    return mask | 1 << len(known) if wanted.difference(known) else mask


def derive(
    node: Node,
    payloads: NodePayloads,
    pods: Collection[GpuPod],
    standing: Callable[[Claim], Standing],
    is_stale: Callable[[Holder], bool],
) -> NodeView:
    """Build the view of one node; linear in GPUs, claims and pods.

    Args:
        node: The node.
        payloads: What its annotations say.
        pods: Those bound to it that ask for GPUs.
        standing: Judges a claim of its ledger.
        is_stale: Says of an observed holder that no such pod runs here any more.

    """
    facts = _Facts(payloads, pods, standing, is_stale)
    closed = payloads.defect or (UNKNOWN_GPUS if any(map(facts.hides_gpus, facts.live)) else None)
    return NodeView(
        node=node,
        payloads=payloads,
        uuids=facts.uuids,
        shape=Shape(facts.topology_class, 0 if closed else facts.usable & ~facts.claimed, closed),
        usable=facts.usable,
        claims=facts.claims,
        unledgered=tuple(facts.unledgered()),
        conflicts=facts.conflicts(),
    )


class _Facts:
    """The parts of one view while it is built."""

    def __init__(
        self,
        payloads: NodePayloads,
        pods: Collection[GpuPod],
        standing: Callable[[Claim], Standing],
        is_stale: Callable[[Holder], bool],
    ) -> None:
        gpus, ledger, observed = payloads.topology.value, payloads.ledger.value, payloads.observed.value
        self.uuids = gpus.uuids if gpus else ()
        self.topology_class = gpus.topology_class if gpus else None
        self.live = sorted((pod for pod in pods if not pod.stopped), key=lambda pod: pod.uid)
        self.claims = tuple((claim, standing(claim)) for claim in ledger.claims) if ledger else ()
        self.holders = {
            gpu: holder for gpu, holder in (observed.gpus if observed else {}).items() if not is_stale(holder)
        }
        self.placed = {gpu for pod in self.live for gpu in pod.placed or ()}
        self.claimed = mask_of(
            self.uuids, (claim.gpu for claim, standing in self.claims if standing is not Standing.FREE)
        )
        taken = mask_of(self.uuids, self.placed.union(self.holders)) | _unfit(payloads)
        self.usable = (1 << len(self.uuids)) - 1 & ~taken

    def hides_gpus(self, pod: GpuPod) -> bool:
        """Whether the pod holds more GPUs than its record, its claims and the agent's report account for."""
        known = set(pod.placed or ())
        known.update(claim.gpu for claim, _ in self.claims if claim.uid == pod.uid)
        known.update(gpu for gpu, holder in self.holders.items() if (holder.namespace, holder.name) == pod.key)
        return pod.gpus is None or len(known) < pod.gpus

    def unledgered(self) -> Iterator[Claim]:
        """Yield one claim for each placed GPU of the node that no standing claim covers."""
        covered = {claim.gpu for claim, standing in self.claims if standing is not Standing.FREE}
        for pod in self.live:
            record = read_placement(pod.pod) if pod.placed and not pod.placed <= covered else None
            for claim in claims_for(pod.pod, record.containers) if record else ():
                if claim.gpu in self.uuids and claim.gpu not in covered:
                    covered.add(claim.gpu)
                    yield claim

    def conflicts(self) -> frozenset[str]:
        """Return the GPUs with two live owners."""
        owners: dict[str, set[str]] = {}
        for pod in self.live:
            for gpu in pod.placed or ():
                owners.setdefault(gpu, set()).add(pod.uid)
        for claim, standing in self.claims:
            if standing is Standing.HELD:
                owners.setdefault(claim.gpu, set()).add(claim.uid)
        return frozenset(gpu for gpu, uids in owners.items() if len(uids) > 1)


def _unfit(payloads: NodePayloads) -> int:
    """Return the GPUs that are sick or cut into slices."""
    gpus, status = payloads.topology.value, payloads.status.value
    if gpus is None:
        return 0
    mask = sum(1 << position for position, gpu in enumerate(gpus.topology_class.node.gpus) if gpu.mig_enabled)
    if status is None:
        return mask
    unfit = status.unhealthy.union(gpu.uuid for gpu in status.gpus if gpu.mig_enabled)
    return mask | sum(1 << position for position, uuid in enumerate(gpus.uuids) if uuid in unfit)
