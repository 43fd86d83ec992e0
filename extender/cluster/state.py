"""The cluster as this process knows it: caches that take events in, and views of nodes that are derived from them.

No I/O and no clock. A view is derived anew, whole, when somebody asks for it after its node, a claim on it or a pod bound to it
has changed, so nothing here can drift. There are no views before nodes and pods have both been listed: until then, a GPU
without a known owner proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from extender.cluster.caches.agents import SILENCE_SECONDS, AgentPods, Hearing
from extender.cluster.caches.cpu import CpuInUse
from extender.cluster.caches.node_cache import NodeCache
from extender.cluster.caches.pod_cache import PodCache
from extender.cluster.caches.publishers import Publishers
from extender.cluster.candidates.groups import Groups
from extender.cluster.candidates.holds import Holds
from extender.cluster.candidates.offers import Offers
from extender.cluster.candidates.openness import Surroundings
from extender.cluster.candidates.setbacks import Setbacks
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.candidates.values import Values
from extender.cluster.node_view import NodeView, derive
from extender.cluster.objects.gpu_pods import GpuPod, has_ended_unstarted, owner_of
from extender.cluster.objects.kinds import Node
from extender.cluster.objects.locations import LABELS, Labels
from extender.cluster.objects.quantities import cpu_milli
from extender.cluster.ownership.evidence import Evidence
from extender.cluster.ownership.fences import Fences
from extender.cluster.ownership.later_reports import Baselines
from extender.cluster.ownership.sightings import Sightings
from topology.annotations import keys
from topology.annotations.records import Claim
from topology.effort import Effort
from topology.placement.topology_class import TopologyClasses
from topology.value.fragmentation import DemandProfile, PodKind
from topology.value.score import Weights


class ClusterState:
    """Nodes, pods and what follows from them; `nodes`, `pods`, `agents` and `listen` are the ways in."""

    def __init__(
        self,
        *,
        resource: str = keys.GPU_RESOURCE,
        weights: Weights = Weights(),  # noqa: B008
        agent_namespace: str = "",
        silence_seconds: float = SILENCE_SECONDS,
        labels: Labels = LABELS,
    ) -> None:
        self.resource = resource
        self.effort = Effort()
        """What searches may do in a call, and those that go on beside; the verbs bound it."""
        classes = TopologyClasses(weights, self.effort)
        self._shapes = ShapeIndex()
        self.values = Values(classes, weights, self._revalued)
        self.fences = Fences()
        self.nodes = NodeCache(classes, self._node_touched, self.fences.missed, labels)
        self.pods = PodCache(resource, self._pod_touched)
        self.agents = AgentPods(agent_namespace, self._node_touched)
        self.cpu = CpuInUse(self._node_touched)
        self.groups = Groups(self.nodes.locations)
        self.holds = Holds()
        self.offers = Offers()
        self.setbacks = Setbacks()
        self._hearing = Hearing(silence_seconds)
        self._publishers = Publishers()
        self._sightings = Sightings()
        self._views: dict[str, NodeView] = {}
        self._unsettled: set[str] = set()
        self._amiss: set[str] = set()
        self._quarantined: set[str] = set()
        self._claimed_on: dict[str, set[str]] = {}
        self._baselines = Baselines(self.pods.runs_as)
        self._dirty: set[str] = set()

    @property
    def synced(self) -> bool:
        """Whether nodes and pods have both been listed."""
        return self.nodes.synced and self.pods.synced

    @property
    def views(self) -> Mapping[str, NodeView]:
        """All nodes as they are now, by name; empty before the first sync."""
        self.refresh()
        return self._views

    @property
    def shapes(self) -> ShapeIndex:
        """The names of all nodes by shape."""
        self.refresh()
        return self._shapes

    @property
    def unsettled(self) -> Collection[str]:
        """The nodes with claims of which not all are held by pods that run there."""
        self.refresh()
        return self._unsettled

    @property
    def amiss(self) -> Collection[str]:
        """The nodes of which the ledger, or a pod's record, does not say what is."""
        self.refresh()
        return self._amiss

    @property
    def quarantined(self) -> Collection[str]:
        """The nodes with GPUs that two live pods hold."""
        self.refresh()
        return self._quarantined

    @property
    def silent(self) -> int:
        """How many nodes' agents have not written for too long."""
        return len(self._hearing)

    def claimed_on(self, uid: str) -> Collection[str]:
        """Return the nodes on which a pod has claims."""
        self.refresh()
        return self._claimed_on.get(uid, ())

    def refresh(self) -> None:
        """Derive anew the views of all nodes that changed; every reader does that first."""
        if not self.synced:
            return
        while self._dirty:
            batch = sorted(self._dirty, key=self._seniority)
            self._dirty.clear()
            for name in batch:
                self._derive(name)

    def listen(self, now: float) -> list[str]:
        """Take note of whose agent has written since the last call, at `now` (monotonic seconds); returns who fell silent.

        Topologies that changed too often are read once they have been still.
        """
        self.nodes.tell(now)
        changed = self._hearing.listen(self.nodes.statuses(), now)
        self._dirty |= changed
        return sorted(filter(self._hearing.is_silent, changed))

    def set_baseline(self, node: str, claim: Claim) -> None:
        """Take the node's report as it is now for the last one that may be from before the claim's pod was gone.

        Call it after a live read of the node that followed the news that the pod is gone.
        """
        known = self.nodes.get(node)
        if known and node in self.claimed_on(claim.uid):  # what no claim is left of, nobody would ever forget
            self._baselines.put(known, claim)
            self._dirty.add(node)

    def has_baseline(self, node: str, claim: Claim) -> bool:
        """Whether later reports of the node's agent decide about a claim whose pod is gone."""
        known = self.nodes.get(node)
        return known is not None and self._baselines.serves(known, claim)

    def is_asked(self, node: str, claim: Claim) -> bool:
        """Whether the node's agent is asked for a look that decides about a claim whose pod is gone."""
        known = self.nodes.get(node)
        return known is not None and self._baselines.is_asked(known, claim)

    def _revalued(self) -> None:
        self._shapes.forget_verdicts(DemandProfile(self.values.typical) if self.values.typical else None)

    def _node_touched(self, name: str) -> None:
        self._dirty.add(name)

    def _pod_touched(self, uid: str, nodes: set[str]) -> None:
        self._dirty |= nodes
        self._dirty |= self._claimed_on.get(uid, set())
        pod = self.pods.get(uid)
        self.groups.take(uid, pod)
        if pod is not None:
            kind = PodKind(pod.gpus, cpu_milli=cpu_milli(pod.pod)) if pod.gpus else None
            self.values.meet(uid, kind, running=pod.node is not None and not pod.stopped)
            if pod.node is not None:
                self._tell_of_bound(pod, pod.node)
        else:
            self.values.forget(uid)
            self.holds.release(uid)
            self.offers.forget(uid)
            self.setbacks.forget(uid, is_gone=True)
            self._sightings.forget(uid)

    def _tell_of_bound(self, pod: GpuPod, node: str) -> None:
        self.setbacks.forget(pod.uid)
        if has_ended_unstarted(pod.pod):  # in the first list it may be long ago
            self.setbacks.end_unstarted(pod.uid, owner_of(pod.pod), node, is_news=self.pods.synced)

    def _derive(self, name: str) -> None:
        known, before = self.nodes.get(name), self._views.pop(name, None)
        self._unsettled.discard(name)
        self._amiss.discard(name)
        self._quarantined.discard(name)
        gpus = known.payloads.topology.value if known else None
        self._dirty |= self._publishers.publish(name, gpus.uuids if gpus else ())
        if known is None:
            self._shapes.put(name, None)
            self._index_claims(name, before, None)
            self.fences.mended(name)
            return
        evidence = Evidence(known, self.pods, self._sightings, self._baselines)
        bound, surroundings = self.pods.bound_to(name), self._surroundings(known.node)
        view = derive(known.node, known.payloads, bound, evidence, surroundings)
        self._views[name] = view
        self._shapes.put(name, view.shape)
        self._index_claims(name, before, view)
        if view.is_broken:
            self.fences.lost(name, known.payloads.ledger if known.payloads.had_ledger else None)
        else:
            self.fences.mended(name)
        if not view.settled:
            self._unsettled.add(name)
        if view.is_amiss:
            self._amiss.add(name)
        if view.conflicts:
            self._quarantined.add(name)

    def _seniority(self, name: str) -> tuple[str, str]:
        """Order nodes by age: the elder one speaks for a GPU that two of them list."""
        known = self.nodes.get(name)
        return (known.node.metadata.creation_timestamp or "" if known else "", name)

    def _surroundings(self, node: Node) -> Surroundings:
        name = node.metadata.name
        return Surroundings(
            is_twin=self._publishers.is_twin(name),
            agent_is_silent=self._hearing.is_silent(name),
            agent_is_ready=self.agents.is_ready(name),
            free_cpu_milli=self.cpu.free_milli(node),
        )

    def _index_claims(self, name: str, before: NodeView | None, view: NodeView | None) -> None:
        old = {claim.uid for claim, _ in before.claims} if before else set()
        new = {claim.uid for claim, _ in view.claims} if view else set()
        for uid in new - old:
            self._claimed_on.setdefault(uid, set()).add(name)
        for uid in old - new:
            self._baselines.drop(name, uid)
            self._claimed_on[uid].discard(name)
            if not self._claimed_on[uid]:
                del self._claimed_on[uid]
