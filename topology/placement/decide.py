"""The one door: what a pod gets on a node, or why it gets nothing there.

Filter, prioritize, bind, preempt, explanations, the device plugin, `kubectl gputopo`, the command line, the demo and the
simulator all call `decide`. Nothing else calls what is below it; import-linter enforces that. Whatever else a decision
comes to depend on is one more field of `Situation` or of `GpuRequest`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from topology.node.alignment import Policy, TopologyManager
from topology.node.status import MigStrategy
from topology.placement.alignment import NOT_YET, align
from topology.placement.forecast import forecast
from topology.placement.plan import Parts, plan
from topology.placement.rails import NO_RAILS, Rails
from topology.placement.shares import NO_SHARES, Shares
from topology.placement.sharing import less_fragmentation, less_held_back, place_shares
from topology.placement.slices import is_about_slices, place_slices, wanted_devices
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import ASK_WHO, UNDECIDED, UNKNOWN_GPUS, Placement, Reason, Rejection
from topology.request.gpu_request import GpuRequest
from topology.value.fragmentation import DemandProfile, FreeCapacity, PodKind

Decision = Placement | Rejection


@dataclass(frozen=True, slots=True)
class Situation:
    """What there is to choose from on one node, and who chooses."""

    topology_class: TopologyClass
    """The wires, and what free sets are worth to the pods to come."""
    free: int
    """GPUs that may be given away whole, and slices, as a mask over positions."""
    must_include: int = 0
    """GPUs that have to be among the chosen; they count as free."""
    doubtful: int = 0
    """GPUs that are chosen last among equals."""
    rails: Rails = NO_RAILS
    """Which of equals a pod of a group takes for the sake of the network."""
    unknown: int = 0
    """How many of the free GPUs, or slices of the profile, are held by somebody; which ones is not known."""
    mig: MigStrategy = MigStrategy.NONE
    """How the node's slices are offered."""
    plugin_chooses: bool = False
    """NVIDIA's device plugin chooses the GPUs, and not we. What it does with GPUs that must be among them is not modelled."""
    topology_manager: TopologyManager | None = None
    """The kubelet's, where the GPUs have a say in it; `None`: it lets a pod have any GPUs."""
    perhaps_free: int = 0
    """GPUs that the kubelet may take for free, whether the pod may have them or not; the free ones need not be among them."""
    capacity: FreeCapacity | None = None
    """What is idle on the node, CPU and parts of GPUs included; `None`: not counted. CPU that does not suffice is for
    kube-scheduler to see."""
    to_come: DemandProfile | None = None
    """What the pods to come take beside links; `None`: not counted."""
    shares: Shares = NO_SHARES
    """What pods may share of the GPUs."""

    def __post_init__(self) -> None:
        if self.plugin_chooses and self.must_include:
            raise ValueError("no forecast is made with GPUs that must be among the chosen")


def decide(situation: Situation, request: GpuRequest) -> Decision:
    """Return the best placement of the request, or why there is none; exact.

    A repeated question costs a look-up of what the links say and the sum of what is left beside them. Of a pod that shares
    its GPU only free capacity and pods to come count.
    """
    if not request.is_share and is_about_slices(situation.mig, request):
        return _slices(situation, request)
    if situation.topology_class.node.slices:
        situation = _of_gpus(situation)
    if request.is_share:
        return _shares(situation, request)
    capacity, to_come = situation.capacity, situation.to_come
    found = _by_links(situation, request)
    if capacity is None or to_come is None or isinstance(found, Rejection):
        return found
    found = less_held_back(found, situation.topology_class, situation.free, situation.shares)
    kind = PodKind(request.gpus, cpu_milli=request.cpu_milli)
    return less_fragmentation(found, situation.topology_class.weights.pods_to_come, capacity, kind, to_come)


def devices_for(topology_class: TopologyClass, mig: MigStrategy, request: GpuRequest) -> int:
    """Return the GPUs or slices that such a request is about, as a mask over positions."""
    return wanted_devices(topology_class, mig, request)


def _slices(situation: Situation, request: GpuRequest) -> Decision:
    return place_slices(
        situation.topology_class,
        situation.mig,
        situation.free,
        request,
        must=situation.must_include,
        doubtful=situation.doubtful,
        unknown=situation.unknown,
        plugin_chooses=situation.plugin_chooses,
    )


def _shares(situation: Situation, request: GpuRequest) -> Decision:
    """Place shares; while it is not known who holds which free GPU, none of these begins to be shared."""
    shares = replace(situation.shares, shareable=0) if situation.unknown else situation.shares
    return place_shares(
        situation.topology_class,
        situation.free,
        shares,
        request,
        doubtful=situation.doubtful,
        capacity=situation.capacity,
        to_come=situation.to_come,
    )


def _of_gpus(situation: Situation) -> Situation:
    """Return the situation without slices, of which nobody gets any in place of GPUs."""
    every = (1 << len(situation.topology_class.node)) - 1
    free, must, doubtful = (mask & every for mask in (situation.free, situation.must_include, situation.doubtful))
    return replace(situation, free=free, must_include=must, doubtful=doubtful)


def _by_links(situation: Situation, request: GpuRequest) -> Decision:
    if situation.topology_manager is not None and 0 < request.gpus <= situation.free.bit_count():
        return _as_kubelet_aligns(situation, situation.topology_manager, request)
    if situation.unknown:
        return _around_unknown(situation, request.of_links)
    return _by_links_alone(situation, request.of_links)


def _by_links_alone(situation: Situation, request: GpuRequest, parts: Parts = ()) -> Decision:
    topology_class, free, must = situation.topology_class, situation.free, situation.must_include
    if situation.plugin_chooses:
        return forecast(topology_class, free, request, parts)
    return plan(topology_class, free | must, request, must, situation.doubtful, parts, situation.rails)


def _as_kubelet_aligns(situation: Situation, manager: TopologyManager, request: GpuRequest) -> Decision:
    """Plan among the GPUs that the kubelet would let the pod have.

    What the links say comes first: a pod that does not fit for another reason is told that one.
    """
    if situation.unknown:
        found = _around_unknown(situation, request.of_links)
        is_sure = isinstance(found, Rejection) or (situation.plugin_chooses and manager.policy is Policy.BEST_EFFORT)
        return found if is_sure else NOT_YET
    parts = align(
        situation.topology_class,
        manager,
        situation.free,
        situation.perhaps_free,
        request.aligned,
    )
    if parts is NOT_YET and situation.plugin_chooses and manager.policy is Policy.BEST_EFFORT:
        parts = ()  # whatever it gets it runs with, and the ledger learns of it
    found = _by_links_alone(situation, request.of_links, () if isinstance(parts, Rejection) else parts)
    if isinstance(found, Placement):
        return parts if isinstance(parts, Rejection) else found
    if parts and not isinstance(parts, Rejection) and found is not UNDECIDED:
        anywhere = _by_links_alone(situation, request.of_links)
        if isinstance(anywhere, Placement):
            return replace(found, message=f"of the GPUs that the kubelet would choose from, {found.message}")
        return anywhere
    return found


def _around_unknown(situation: Situation, request: GpuRequest) -> Decision:
    """Plan as if any of the free GPUs could be one of the unknown ones: the kubelet may have to give others.

    Enough must be left whichever they are, and nothing can be promised of the set but its size.
    """
    if request.required is not None or request.min_bandwidth_gb_per_s is not None:
        return Rejection(Reason.CLOSED, UNKNOWN_GPUS, remedy=ASK_WHO)
    topology_class, must = situation.topology_class, situation.must_include
    free = situation.free | must
    with_unknown = plan(topology_class, free, replace(request, gpus=request.gpus + situation.unknown), must)
    if with_unknown is UNDECIDED:
        return UNDECIDED
    if isinstance(with_unknown, Rejection):
        return Rejection(
            Reason.TOO_FEW_FREE,
            f"too few GPUs are free: {UNKNOWN_GPUS}",
            f"{situation.unknown} of {free.bit_count()} that seem free",
            ASK_WHO,
            resolvable=True,
        )
    return plan(topology_class, free, request, must, situation.doubtful, rails=situation.rails)
