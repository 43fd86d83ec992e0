"""What people may see of the state, as values with a JSON form: nodes and who has their GPUs, pods, and why a pod waits.

Read-only and made on request. Names are as in the payloads, quantities carry their units.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice

from pydantic import BaseModel, ConfigDict, Field

from extender.cluster.candidates.holds import NOTHING
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import GpuPod, read_placement
from extender.cluster.state import ClusterState
from extender.inspect.faults import Faults
from extender.inspect.groups import GroupInfo, group_info
from extender.inspect.judgement import Barred, Judgement
from extender.inspect.new_nodes import NewNodes, new_nodes
from extender.inspect.notes import PodNote
from extender.inspect.nvlinks import LinkFaultInfo, link_faults_of
from extender.inspect.occupation import DeviceState, occupations, shared_nics
from extender.inspect.offers import OfferInfo, offers_of
from extender.inspect.other_schedulers import scheduler_problem
from extender.inspect.outlook import OutlookInfo, outlooks_of
from extender.inspect.rows import row
from extender.inspect.shares import SharedGpuInfo, SharingInfo, shared_gpus_of, sharing_of
from extender.inspect.slices import SliceInfo, slices_of
from extender.inspect.words import (
    ClaimedDeviceInfo,
    DevicePluginInfo,
    SignInfo,
    UnknownHolderInfo,
    device_plugin_of,
    signs_of,
    unknown_devices_of,
    unknown_holders_of,
)
from extender.kit.clock import Instant
from extender.verbs.pod_context import PodContext
from topology.annotations.records import PlacementRecord
from topology.bandwidth.predict import Bandwidth
from topology.errors import RequestError
from topology.node.links import Affinity
from topology.node.sharing import Limits
from topology.placement.verdict import Placement, Rejection
from topology.request.gpu_request import GpuRequest

GpuState = DeviceState
SHOWN_FITS = 16
NOT_SHOWN = "it cannot be shown: see the log"


class Answer(BaseModel):
    """Something that may be asked for; a value."""

    model_config = ConfigDict(frozen=True)


class BandwidthInfo(Answer):
    """All-reduce bus bandwidth, GB/s: predicted, or measured on such GPUs."""

    low: float
    point: float
    high: float
    measured: bool = Field(default=False, exclude_if=lambda measured: not measured)


class GpuInfo(Answer):
    """One GPU and what has become of it."""

    index: int
    uuid: str
    model: str
    memory_bytes: int | None
    numa_node: int | None
    state: GpuState
    """`held`: kept for a pod between prioritize and bind; `unplanned`: a container or a ResourceClaim has it that nobody planned
    there; `conflict`: two have it."""
    pod: str | None
    """`namespace/name` of whom it is claimed by, or found with."""
    container: str | None
    reasons: tuple[str, ...] = ()
    """What is wrong with it, or to be watched; never empty where it is unusable."""
    outlook: OutlookInfo | None = None
    doubtful: bool = False
    """Whether pods get it last among equals."""
    shared_nics: tuple[str, ...] = Field(default=(), exclude_if=lambda shared: not shared)
    """Which NIC it shares with which pods, in words: those whose groups are on several nodes."""

    @property
    def line(self) -> str:
        """What is wrong with it, or to be watched, for people."""
        return "; ".join((*self.reasons, *(["pods get it last"] if self.doubtful else []), *self.shared_nics))


class NodeInfo(Answer):
    """One node; `free` counts the GPUs that the next pod can have."""

    name: str
    free: int
    closed: str | None
    """Why none of its GPUs is given away."""
    set_aside: str | None = Field(default=None, exclude_if=lambda why: why is None)
    """That it is cordoned, or which taint it has that not all pods with GPUs tolerate; then `free` is 0."""
    by_claim: bool = Field(default=False, exclude_if=lambda by_claim: not by_claim)
    """The extender allocates its GPUs to ResourceClaims, and gives them to no other pods."""
    gpus: tuple[GpuInfo, ...]
    slices: tuple[SliceInfo, ...] = Field(default=(), exclude_if=lambda slices: not slices)
    """MIG devices of those GPUs that are cut up."""
    shared: tuple[SharedGpuInfo, ...] = Field(default=(), exclude_if=lambda shared: not shared)
    """GPUs of which pods have shares."""


class NodeList(Answer):
    """Some nodes, by name."""

    nodes: tuple[NodeInfo, ...]


class NodePage(NodeList):
    """`next` is what to ask for `after` to get the nodes that follow."""

    next: str | None


class BestSet(Answer):
    """The best that a pod of so many GPUs would find among the free ones."""

    gpus: int
    indexes: tuple[int, ...]
    """In ring order."""
    affinity: Affinity | None
    bandwidth_gb_per_s: BandwidthInfo | None


class NodeDetail(NodeInfo):
    """One node, with its wiring and what its free GPUs are worth."""

    matrix: tuple[tuple[str, ...], ...]
    driver_version: str | None
    cuda_version: str | None
    best_sets: tuple[BestSet, ...]
    device_plugin: DevicePluginInfo | None = None
    """`None` when its agent does not say."""
    sharing: SharingInfo | None = None
    """`None` where GPUs are not shared by memory."""
    offers: tuple[OfferInfo, ...] = ()
    """How it offers the GPUs, where it is somebody else's."""
    link_faults: tuple[LinkFaultInfo, ...] = ()
    """NVLinks that rings do without."""
    signs: tuple[SignInfo, ...] = ()
    """What other health agents say of its GPUs, what closes it first."""
    unknown_holders: tuple[UnknownHolderInfo, ...] = ()
    """Pods that hold GPUs of it which nobody can name."""
    unknown_devices: tuple[ClaimedDeviceInfo, ...] = ()
    """What ResourceClaims hold that may be any of its GPUs."""


class PodInfo(Answer):
    """One pod that asks for GPUs."""

    namespace: str
    name: str
    uid: str
    phase: str | None
    gpus: int | None
    node: str | None
    containers: dict[str, tuple[str, ...]] | None
    """Container → GPU UUIDs, once placed."""
    memory_gib: dict[str, int] = Field(default_factory=dict, exclude_if=lambda shares: not shares)
    """Container → its share of its GPU's memory."""
    limits: Limits | None = Field(default=None, exclude_if=lambda limits: limits is None)
    """What holds it to its shares."""
    indexes: tuple[int, ...]
    """The same as numbers on the node, in ring order; empty where they are not known."""
    affinity: Affinity | None
    bandwidth_gb_per_s: BandwidthInfo | None
    shares_gib: tuple[int, ...] = Field(default=(), exclude_if=lambda gib: not gib)
    """GiB of each share of a GPU that it asks for; then it asks for no whole one."""

    @property
    def asked(self) -> str:
        """What it asks for, in words."""
        if self.shares_gib:
            return f"{' + '.join(map(str, self.shares_gib))} GiB of a GPU"
        return (
            "an unreadable number of GPUs" if self.gpus is None else f"{self.gpus} GPU{'s' if self.gpus != 1 else ''}"
        )


class FittingNode(BestSet):
    """Where a pod could go now; nodes with higher scores are preferred."""

    node: str
    score: float


class Refusal(Answer):
    """Why a number of nodes will not do."""

    reason: str
    message: str
    """The rule that is broken."""
    nodes: int
    example: str
    figures: str = ""
    """What the node of the example has instead."""
    remedy: str = ""
    """What would help."""


class Explanation(Answer):
    """All that there is to say about one pod."""

    pod: PodInfo
    group: GroupInfo | None = None
    new_nodes: NewNodes | None = None
    """`None` where no group of nodes is known."""
    fits: tuple[FittingNode, ...]
    """The best, best first."""
    refusals: tuple[Refusal, ...]
    """The most frequent first."""
    problem: str | None
    """What is wrong with the pod itself."""
    scheduler_problem: str | None = Field(default=None, exclude_if=lambda problem: problem is None)
    """That the pod waits for a scheduler which does not ask us: `fits` is where it could go if it named ours."""
    notes: tuple[PodNote, ...] = Field(default=(), exclude_if=lambda notes: not notes)
    """What features say of the pod."""
    estimate: bool = False
    """Worked out from annotations alone, without what only a running extender knows: what it holds, and what it has learnt."""


def node_names(state: ClusterState, containing: str = "", after: str = "") -> Iterator[str]:
    """Yield the names of the nodes that have to do with GPUs, in order; most of a cluster's nodes may not."""
    for name in sorted(state.views):
        if name > after and containing in name:
            view = state.views.get(name)  # it may have gone since, where somebody reads on later
            if view and (_is_annotated(view) or view.node.offers(state.resource)):
                yield name


def nodes(state: ClusterState, names: Iterable[str], now: Instant) -> Iterator[NodeInfo]:
    """Yield those of the nodes that are still known; one that cannot be shown says so, and all others are shown."""
    held = state.holds.others("", now.monotonic)
    for name in names:
        if view := state.views.get(name):
            shown = partial(_node, state, view, held.get(name, NOTHING).touched)
            yield row(name, shown, NodeInfo(name=name, free=0, closed=NOT_SHOWN, gpus=()))


def node(state: ClusterState, name: str, now: Instant) -> NodeDetail | None:
    """Return one node, `None` when it is not known."""
    view = state.views.get(name)
    if view is None:
        return None
    with state.effort.bounded():
        best_sets = tuple(_best_sets(view))
    info = _node(state, view, state.holds.others("", now.monotonic).get(name, NOTHING).touched)
    topology = view.shape.topology_class.node if view.shape.topology_class else None
    return NodeDetail(
        **dict(info),
        matrix=topology.matrix if topology else (),
        driver_version=topology.driver_version if topology else None,
        cuda_version=topology.cuda_version if topology else None,
        best_sets=best_sets,
        device_plugin=device_plugin_of(view),
        sharing=sharing_of(view),
        offers=offers_of(view),
        link_faults=link_faults_of(view),
        signs=signs_of(view),
        unknown_holders=unknown_holders_of(view),
        unknown_devices=unknown_devices_of(view),
    )


def pods_on(state: ClusterState, node: str) -> list[PodInfo]:
    """Return the pods that hold GPUs of a node, by namespace and name."""
    placed = (pod for pod in state.pods.bound_to(node) if not pod.stopped)
    return pod_infos(state, sorted(placed, key=lambda pod: pod.key))


def pod_infos(state: ClusterState, pods: Iterable[GpuPod]) -> list[PodInfo]:
    """Return what is to be shown of some pods, without those that cannot be shown."""
    return [*shown_pods(state, pods)]


def shown_pods(state: ClusterState, pods: Iterable[GpuPod]) -> Iterator[PodInfo]:
    """Yield what is to be shown of some pods, without those that cannot be shown."""
    for pod in pods:
        if shown := row("/".join(pod.key), partial(pod_info, state, pod), None):
            yield shown


def explain(
    state: ClusterState, namespace: str, name: str, now: Instant, barred: Barred | None = None
) -> Explanation | None:
    """Say where a pod could go and why not elsewhere, as filter and prioritize would; `None` when it is not known.

    `barred` is what `prepare_judgement` has returned, if it was called.
    """
    gpu_pod = state.pods.find(namespace, name)
    if gpu_pod is None:
        return None
    try:
        context = PodContext.read(state, gpu_pod.pod, now)
    except RequestError as error:
        return Explanation(
            pod=pod_info(state, gpu_pod),
            fits=(),
            refusals=(),
            problem=str(error),
            scheduler_problem=scheduler_problem(state, gpu_pod.pod),
        )
    if gpu_pod.node is not None:
        group = group_info(state, context)
        return Explanation(pod=pod_info(state, gpu_pod), group=group, fits=(), refusals=(), problem=None)
    return explained(state, pod_info(state, gpu_pod), context, barred)


def explained(state: ClusterState, pod: PodInfo, context: PodContext, barred: Barred | None = None) -> Explanation:
    """Say where it could go and why not elsewhere; it need not exist."""
    judgement = Judgement.of(state, context, barred)
    verdicts = judgement.verdicts(sorted(state.views))
    best = islice(judgement.ranking.best_first(), SHOWN_FITS)
    return Explanation(
        pod=pod,
        group=group_info(state, context),
        new_nodes=new_nodes(state, context),
        fits=tuple(_fit(state.views[name], verdicts[name]) for name in best),
        refusals=_refusals(verdicts.items()),
        problem=None,
        scheduler_problem=scheduler_problem(state, context.pod),
    )


def _node(state: ClusterState, view: NodeView, held: int) -> NodeInfo:
    topology = view.shape.topology_class.node if view.shape.topology_class else None
    outlooks, occupied, gpus, shared = outlooks_of(view), occupations(view, held), [], shared_nics(state, view)
    faults = Faults(view)
    for position, uuid in enumerate(view.uuids):
        assert topology is not None
        gpu = topology.gpus[position]
        gpus.append(
            GpuInfo(
                index=gpu.index,
                uuid=uuid,
                model=gpu.model,
                memory_bytes=gpu.memory_bytes,
                numa_node=gpu.numa_node,
                state=occupied[position].state,
                pod=occupied[position].pod,
                container=occupied[position].container,
                reasons=faults.of(position),
                outlook=outlooks.get(uuid),
                doubtful=bool(view.doubtful >> position & 1),
                shared_nics=shared[position],
            )
        )
    free = sum(gpu.state == "free" for gpu in gpus) if view.is_open else 0
    slices, parts = tuple(slices_of(view, occupied, faults)), tuple(shared_gpus_of(view))
    return NodeInfo(
        name=view.name,
        free=free,
        closed=view.shape.closed,
        set_aside=view.set_aside,
        by_claim=view.by_claim,
        gpus=tuple(gpus),
        slices=slices,
        shared=parts,
    )


def _is_annotated(view: NodeView) -> bool:
    annotated = view.payloads
    return any(payload.text is not None for payload in (annotated.topology, annotated.status, annotated.ledger))


def _best_sets(view: NodeView) -> Iterable[BestSet]:
    for count in (2, 4, 8, 16):
        verdict = view.shape.decide(replace(GpuRequest.plain(count), by_claim=view.by_claim))
        if isinstance(verdict, Placement):
            yield best_set(view, verdict)


def _fit(view: NodeView, verdict: Placement | Rejection) -> FittingNode:
    assert isinstance(verdict, Placement)
    return FittingNode(**dict(best_set(view, verdict)), node=view.name, score=verdict.score)


def best_set(view: NodeView, placement: Placement) -> BestSet:
    """Return a placement on a node as people see it."""
    assert view.shape.topology_class is not None
    indexes = view.shape.topology_class.node.indexes
    return BestSet(
        gpus=len(placement.gpus),
        indexes=tuple(indexes[position] for position in placement.gpus),
        affinity=placement.affinity,
        bandwidth_gb_per_s=bandwidth_info(placement.bandwidth),
    )


def pod_info(state: ClusterState, pod: GpuPod) -> PodInfo:
    """Return what is to be shown of a pod."""
    record, metadata = read_placement(pod.pod), pod.pod.metadata
    return PodInfo(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        phase=pod.pod.status.phase,
        gpus=pod.gpus,
        node=pod.node,
        containers=dict(record.containers) if record else None,
        memory_gib=dict(record.memory_gib) if record else {},
        limits=record.limits if record else None,
        indexes=_indexes(state.views.get(pod.node or ""), record),
        affinity=record.affinity if record else None,
        bandwidth_gb_per_s=bandwidth_info(record.bandwidth if record else None),
        shares_gib=pod.shares,
    )


def _indexes(view: NodeView | None, record: PlacementRecord | None) -> tuple[int, ...]:
    if view is None or record is None or view.shape.topology_class is None:
        return ()
    index_of = dict(zip(view.devices, view.shape.topology_class.node.indexes, strict=True))
    placed = dict.fromkeys(gpu for gpus in record.containers.values() for gpu in gpus)
    return tuple(index_of[gpu] for gpu in placed if gpu in index_of)


def bandwidth_info(predicted: Bandwidth | None) -> BandwidthInfo | None:
    """Return a bandwidth as people see it."""
    return BandwidthInfo(**asdict(predicted)) if predicted else None


def _refusals(verdicts: Iterable[tuple[str, Placement | Rejection]]) -> tuple[Refusal, ...]:
    alike: dict[str, list[tuple[str, Rejection]]] = defaultdict(list)
    for name, verdict in verdicts:
        if isinstance(verdict, Rejection):
            alike[verdict.message].append((name, verdict))
    ordered = sorted(alike.items(), key=lambda group: (-len(group[1]), group[0]))
    return tuple(_refusal(refused) for _, refused in ordered)


def _refusal(refused: Sequence[tuple[str, Rejection]]) -> Refusal:
    name, first = refused[0]
    said = {"reason": first.reason, "message": first.message, "figures": first.figures, "remedy": first.remedy}
    return Refusal(**said, nodes=len(refused), example=name)
