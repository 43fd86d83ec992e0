"""What nodes have in common that filter and prioritize treat alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

from extender.cluster.candidates.holds import Held
from extender.cluster.candidates.openness import BY_DRA, NOT_BY_CLAIM, what_opens
from extender.cluster.objects.payloads import NO_TOPOLOGY
from topology.node.alignment import TopologyManager
from topology.node.status import MigStrategy
from topology.placement.claims_left import LEDGER_FULL, PLENTY, ClaimsLeft
from topology.placement.decide import Decision, Situation, decide, devices_for
from topology.placement.rails import NO_RAILS, Rails
from topology.placement.shares import NO_SHARES, Shares, capacity_of
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import UNDECIDED, Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest
from topology.value.fragmentation import DemandProfile

_WRONG_DOOR = {
    by_claim: Rejection(Reason.CLOSED, why, remedy=what_opens(why))
    for by_claim, why in ((True, BY_DRA), (False, NOT_BY_CLAIM))
}
"""For pods that do not request GPUs as the node hands them out."""
CPU_STEP_MILLI = 4000
"""Finer differences do not make another shape."""


def in_steps(cpu_milli: int) -> int:
    """Return idle CPU in whole steps, rounded up: GPUs that have all the CPU they need must not seem to lack some.

    >>> in_steps(10_000), in_steps(8_000)
    (12000, 8000)
    """
    return -(-cpu_milli // CPU_STEP_MILLI) * CPU_STEP_MILLI


@dataclass(frozen=True, slots=True)
class Shape:
    """All that decides a verdict: to filter and prioritize, nodes of one shape are one node."""

    topology_class: TopologyClass | None
    free: int
    """GPUs and slices, as a mask over positions."""
    closed: str | None = None
    """Why no GPU of the node may be given away."""
    doubtful: int = 0
    """Those of the free GPUs that pods get last among equals."""
    hidden: int = 0
    """How many of the free GPUs are held by pods that bypassed us; which ones is not known yet."""
    plugin_chooses: bool = False
    """Whether NVIDIA's device plugin chooses the GPUs, and not we."""
    topology_manager: TopologyManager | None = None
    """The kubelet's, where the GPUs have a say in it."""
    perhaps_free: int = 0
    """GPUs that the kubelet may take for free, whether they are or not; only where it aligns."""
    cpu_milli: int | None = None
    """CPU that nobody has asked for, `in_steps`; `None` where that is not known."""
    mig: MigStrategy = MigStrategy.NONE
    """How the node's MIG slices are offered."""
    hidden_slices: tuple[tuple[str, int], ...] = ()
    """The same as `hidden` of slices, by profile."""
    shares: Shares = NO_SHARES
    """What pods may share of the GPUs."""
    claims_left: ClaimsLeft = PLENTY
    """How many more claims the node's ledger takes."""
    by_claim: bool = False
    """Its GPUs are for pods that request them by ResourceClaims, and for no others."""

    @property
    def free_gpus(self) -> int:
        """Those of the free ones that are GPUs."""
        return self.free & (1 << len(self.topology_class.node)) - 1 if self.topology_class else 0

    def excluding(self, devices: int) -> int:
        """Return these devices and all that nobody else may have while somebody has them."""
        return self.topology_class.excluding(devices) if self.topology_class else devices

    def beside(self, taken: Held) -> Shape:
        """Return the shape beside what is taken; of the ledger, too, as far as the number of claims says it."""
        if not taken:
            return self
        free = self.free & ~self.excluding(taken.touched)
        return replace(
            self,
            free=free,
            doubtful=self.doubtful & free,
            shares=self.shares.beside(taken.gpus, taken.shares),
            claims_left=self.claims_left.plus(-taken.gpus.bit_count() - len(taken.shares)),
        )

    def after(self, given_back: Held) -> Shape:
        """Return the shape once pods have given this back: a GPU of which all shares have gone is free."""
        shares, emptied = self.shares.given_back(given_back.shares)
        gpus = given_back.gpus | emptied
        return replace(self, free=self.free | gpus, perhaps_free=self.perhaps_free | gpus, shares=shares)

    def only(self, held: Held) -> Shape:
        """Return the shape where nothing else is free than this, and not all of this need be."""
        free = self.free & held.gpus
        # No GPU begins to be shared while it is not known which GPUs are free.
        shares = replace(self.shares, shareable=0) if self.hidden else self.shares
        return replace(self, free=free, doubtful=self.doubtful & free, shares=shares.only(held.shares))

    def devices_for(self, request: GpuRequest) -> int:
        """Return the GPUs or slices, free or not, that such a request is about."""
        return devices_for(self.topology_class, self.mig, request) if self.topology_class else 0

    def decide(
        self,
        request: GpuRequest,
        to_come: DemandProfile | None = None,
        idle: int | None = None,
        rails: Rails = NO_RAILS,
    ) -> Decision:
        """Return the best placement on the free GPUs, or why there is none; memoised by the class.

        Args:
            request: What the pod asks for.
            to_come: The pods to come, where CPU is to count.
            idle: The GPUs that count as idle then, if they are not the free ones.
            rails: Which of equals a pod of a group takes.

        """
        if self.closed is not None or self.topology_class is None:
            closed = self.closed or NO_TOPOLOGY
            return Rejection(Reason.CLOSED, closed, remedy=what_opens(closed))
        if self.by_claim != request.by_claim:
            return _WRONG_DOOR[self.by_claim]
        capacity = None
        if to_come is not None and self.cpu_milli is not None:
            whole = self.free if idle is None else idle
            capacity = capacity_of(len(self.topology_class.node), whole, self.shares, self.cpu_milli)
        situation = Situation(
            self.topology_class,
            self.free,
            doubtful=self.doubtful,
            rails=rails,
            unknown=dict(self.hidden_slices).get(request.profile, 0) if request.profile else self.hidden,
            mig=self.mig,
            plugin_chooses=self.plugin_chooses,
            topology_manager=self.topology_manager,
            perhaps_free=self.perhaps_free,
            capacity=capacity,
            to_come=to_come,
            shares=self.shares.of_free(self.free),
        )
        verdict = decide(situation, request)
        return LEDGER_FULL if isinstance(verdict, Placement) and not self.claims_left.takes(verdict) else verdict

    def seen_by(self, request: GpuRequest, *, counts: bool) -> object:
        """Return what of the shape makes a difference to the request: shapes that are equal in that get one verdict.

        `None` where that is most of it. `counts`: free capacity counts, for the sake of pods to come.
        """
        topology_class = self.topology_class
        if self.closed is not None or topology_class is None:
            return self.closed
        if self.by_claim != request.by_claim:
            return _WRONG_DOOR[self.by_claim]
        if request.is_share:
            return self.shares.refused
        if counts or topology_class.node.slices:
            return None
        manager = self.topology_manager
        alignment = (manager, self.perhaps_free) if manager is not None else None
        left = self.claims_left.whole
        return topology_class, self.free, self.doubtful, self.hidden, self.plugin_chooses, alignment, left

    def how_many_fit(self, request: GpuRequest) -> tuple[int, bool]:
        """Return how many pods with this request fit one after the other, each planned beside those before it.

        And whether that is all: the search for the next one may still go on. Shares go where the one before went for as
        long as there is room. A GPU takes a hundred of them, and one decision is enough for all. What their claims will
        take of the ledger is not counted: it depends on their names.
        """
        shape, pods = self, 0
        while isinstance(verdict := shape.decide(request), Placement) and verdict.gpus:
            taken, shares, often = shape.excluding(sum(1 << i for i in verdict.gpus)), shape.shares, 1
            if request.is_share:
                shares, often = shares.filled(verdict.shares, request.memory_gib, request.sharing_class)
            shape = replace(shape, free=shape.free & ~taken, perhaps_free=shape.perhaps_free & ~taken, shares=shares)
            pods += often
        return pods, verdict is not UNDECIDED

    @property
    def breadth(self) -> int:
        """How many different GPUs the machine has: what a search over their sets grows with."""
        return self.topology_class.breadth if self.topology_class else 0
