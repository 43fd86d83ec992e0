"""Bring a node's ledger, and the records of its pods, in line with what is.

- A ledger that is lost, unreadable, changed by others or was never there is rebuilt. First every unbound pod is fenced,
  because it may have had a claim whose Binding is under way (`unbound_pods`). Then the GPUs of the bound pods are added
  to the last reliable ledger. Only `release` takes a claim away.
- A claim follows the fact (`correction`), after a live read of the pod: a report and a cache may both be of the past. An unbound
  pod in its way is fenced first, and the ledger is replaced only as it was before the fence.
- A pod's record follows the ledger, once both the agent and the ledger say the same. Where somebody refuses that for good, it is
  tried again every minute; the ledger counts, and the record only tells people.

The same generator form as `bind`: kill it anywhere, run it twice, run it beside another one. What is not done is due again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.binding.correction import Correction, correct
from extender.binding.intents import Done, FencePod, GetPod, Refused, Reply, Step, WritePlacement, fence
from extender.binding.ledger import swap_ledger
from extender.binding.unbound_pods import fence_all_unbound, hear_of_bound
from extender.cluster.masks import mask_of
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import GpuPod, gib_by_container
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.objects.parts import containers_of
from extender.cluster.ownership.holdings import Holding
from extender.cluster.state import ClusterState
from extender.kit.lasting import Lasting
from topology.annotations.records import PlacementRecord, encode_placement
from topology.bandwidth.predict import ring_order
from topology.errors import PayloadError

SETTLING_SECONDS = 2.0
"""A pod may be heard of before the ledger is that its bind wrote first: that is no damage."""
REFUSED_SECONDS = 60.0
"""Until a record that was refused is tried again."""


@dataclass(slots=True)
class Repairs:
    """Remembers since when nodes have been amiss."""

    settling_seconds: float = SETTLING_SECONDS
    _lasting: Lasting[str] = field(default_factory=Lasting)
    _refused: dict[str, float] = field(default_factory=dict)
    """Node → when a record of one of its pods was refused."""

    def due(self, state: ClusterState, now: float) -> list[str]:
        """Return the nodes to repair at `now` (monotonic seconds), by name."""
        lasting = self._lasting.seconds(sorted(state.conditions.amiss), now)
        self._refused = {name: at for name, at in self._refused.items() if now - at < REFUSED_SECONDS}
        return [name for name, seconds in lasting.items() if self._is_due(state.views[name], seconds)]

    def take_note(self, name: str, done: Repaired, now: float) -> None:
        """Take note of what came of a repair."""
        if done.refused:
            self._refused[name] = now

    def _is_due(self, view: NodeView, seconds: float) -> bool:
        if view.is_broken:
            return True
        is_only_of_records = all(held.is_settled for held in view.holdings)
        return seconds >= self.settling_seconds and not (is_only_of_records and view.name in self._refused)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What came of it."""

    rebuilt: bool = False
    """The ledger was lost, and is whole again."""
    corrected: tuple[Holding, ...] = ()
    """Pods whose claims are what they hold, now."""
    refused: bool = False
    """A pod's record may not be written."""


def repair(state: ClusterState, name: str) -> Step[Repaired]:
    """Do for one node what can be done now."""
    view = state.views.get(name)
    if view is None or (view.payloads.ledger.problem is not None and not view.is_broken):
        return Repaired()
    was_broken, was_new = view.is_broken, view.is_new
    if was_broken:
        if not ((yield from fence_all_unbound(state, name)) and (yield from hear_of_bound(state, name))):
            return Repaired()
        view = state.views.get(name)
        if view is None or not view.is_broken or state.fences.is_needed(name):
            return Repaired()
    correction = correct(view)
    for held in () if was_broken else correction.holdings:
        if not (yield from _is_as_known(state, held.pod)):
            return Repaired()
    if (was_broken or correction.holdings) and not (yield from _rewrite(state, view, correction)):
        return Repaired()
    refused = yield from _rewrite_records(state, name)
    return Repaired(was_broken and not was_new, correction.holdings, refused)


def _is_as_known(state: ClusterState, pod: GpuPod) -> Step[bool]:
    """Read live whether the pod is in the version that we know; if not, the next round knows better."""
    reply = yield GetPod(*pod.key)
    if not (isinstance(reply, Done) and isinstance(reply.value, Pod)):
        return False
    state.pods.learn(reply.value)
    seen, cached = reply.value.metadata, pod.pod.metadata
    return (seen.uid, seen.resource_version) == (cached.uid, cached.resource_version)


def _rewrite(state: ClusterState, view: NodeView, correction: Correction) -> Step[bool]:
    """Replace the ledger as `view` shows it, without the claims of the unbound pods that are in the way, and fenced."""
    for uid in sorted(correction.displaced):
        pod = state.pods.get(uid)
        if pod is None or pod.node is not None:
            return False
        if not isinstance((yield from _write(state, fence(pod.pod))), Done):
            return False
    moved = {held.pod.uid for held in correction.holdings}
    try:
        swap = swap_ledger(view, without=correction.displaced | moved, facts=correction.facts)
    except PayloadError:  # a ledger that names more GPUs than any node has
        return False
    reply = yield swap
    if not (isinstance(reply, Done) and isinstance(reply.value, Node)):
        return False
    state.nodes.learn(reply.value)
    return True


def _rewrite_records(state: ClusterState, name: str) -> Step[bool]:
    """Let the records of pods that run on other GPUs than planned, or were planned by nobody, say so; some may be refused."""
    view = state.views.get(name)
    if view is None:
        return False
    replies = []
    for held in view.holdings:
        if held.outdates_record:
            metadata, text = held.pod.pod.metadata, encode_placement(_record(view, held))
            write = WritePlacement(metadata.namespace, metadata.name, metadata.uid, metadata.resource_version, text)
            replies.append((yield from _write(state, write)))
    return any(isinstance(reply, Refused) for reply in replies)


def _record(view: NodeView, held: Holding) -> PlacementRecord:
    """Return what the GPUs that the pod has are worth together, in ring order; of shares there is nothing to be told."""
    ledger, topology_class = view.payloads.ledger.value, view.shape.topology_class
    generation = ledger.generation if ledger else None
    if held.pod.shares:
        return _record_of_shares(view, held, generation)
    containers = containers_of(held.gpus)
    if topology_class is None or len(held.gpus) < 2 or not held.gpus.keys() <= set(view.uuids):
        nics = view.nics_near(gpu for gpus in containers.values() for gpu in gpus)
        return PlacementRecord(containers, ledger_generation=generation, nics=nics)
    mask = mask_of(view.uuids, held.gpus)
    bandwidth, affinity = topology_class.predict(mask)
    place = {view.uuids[position]: rank for rank, position in enumerate(ring_order(topology_class.wiring, mask))}
    ordered = {name: tuple(sorted(gpus, key=place.__getitem__)) for name, gpus in containers.items()}
    return PlacementRecord(
        ordered, affinity, bandwidth, generation, view.nics_near(sorted(held.gpus, key=place.__getitem__))
    )


def _record_of_shares(view: NodeView, held: Holding, generation: int | None) -> PlacementRecord:
    gib, has = gib_by_container(held.pod.pod), containers_of(held.gpus)
    containers = {name: has.get(name, (min(held.gpus),)) for name in gib}
    limits = view.payloads.sharing.limits if view.payloads.sharing else None
    return PlacementRecord(containers, ledger_generation=generation, memory_gib=gib, limits=limits)


def _write(state: ClusterState, intent: FencePod | WritePlacement) -> Step[Reply]:
    """Write to a pod, and take in what came of it."""
    reply = yield intent
    if isinstance(reply, Done) and isinstance(reply.value, Pod):
        state.pods.learn(reply.value)
    return reply
