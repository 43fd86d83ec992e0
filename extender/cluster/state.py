"""The cluster as this process knows it: caches that take events in, and views of nodes that are derived from them (`views`).

This only wires them. No I/O and no clock. There are no views before nodes and pods have both been listed: until then, a GPU
without a known owner proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from extender.cluster.caches.agents import SILENCE_SECONDS, AgentHeartbeats, AgentPods
from extender.cluster.caches.budgets import Budgets
from extender.cluster.caches.claimed_requests import ClaimedRequests
from extender.cluster.caches.cpu import CpuInUse
from extender.cluster.caches.node_cache import NodeCache
from extender.cluster.caches.pod_cache import PodCache
from extender.cluster.caches.resource_claims import ResourceClaims
from extender.cluster.candidates.holds import Heir, Holds
from extender.cluster.candidates.node_groups import NodeGroups
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.candidates.values import Values
from extender.cluster.conditions import NodeConditions
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import GpuPod, kind_of, read_request, successors_of
from extender.cluster.objects.group_words import ALL_WORDS, GroupWords
from extender.cluster.objects.health_signs import HealthWords
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.movable_pods import OPTED_IN, MovablePods
from extender.cluster.objects.quantities import memory_bytes
from extender.cluster.ownership.fences import Fences
from extender.cluster.pod_indexes import PodIndexes
from extender.cluster.pod_memory import PodMemory
from extender.cluster.sums import Sums
from extender.cluster.views import Sources, Views
from extender.config.defaults import NODE_GROUP_LABEL, SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.records import Claim
from topology.bandwidth.measured import Measurements
from topology.effort import Effort, Search
from topology.errors import RequestError
from topology.node.model import NodeTopology
from topology.placement.topology_classes import TopologyClasses
from topology.request.domains import DOMAIN_LABELS, DomainLabels
from topology.request.gpu_request import PodRequest
from topology.value.score import Weights

if TYPE_CHECKING:
    from extender.config.document import ExtenderConfiguration  # whose pydantic `kubectl gputopo` need not load


NOT_LISTED: Final = "the cluster has not been listed yet"


class ClusterState:
    """Nodes, pods and what follows from them; `nodes`, `pods`, `agents`, `budgets` and `listening` are the ways in."""

    def __init__(
        self,
        *,
        resource: str = keys.GPU_RESOURCE,
        scheduler_names: Collection[str] = (SCHEDULER_NAME,),
        tolerated_taints: Collection[str] = (),
        weights: Weights = Weights(),  # noqa: B008
        agent_namespace: str = "",
        silence_seconds: float = SILENCE_SECONDS,
        labels: DomainLabels = DOMAIN_LABELS,
        health_words: HealthWords | None = None,
        group_words: GroupWords = ALL_WORDS,
        group_label: str = NODE_GROUP_LABEL,
        expected: Mapping[str, NodeTopology] = {},
        movable: MovablePods = OPTED_IN,
    ) -> None:
        self.resource = resource
        self.movable = movable
        """Which pods may move; to be set before pods are read, of which more is kept then."""
        self.effort = Effort()
        """What searches may do in a call, and those that go on beside; the verbs bound it."""
        self.classes = TopologyClasses(weights, self.effort)
        """Of all machines there are; to be read."""
        self.values = Values(self.classes, weights, self._revalued)
        self.fences = Fences()
        self.nodes = NodeCache(self.classes, self._node_changed, self.fences.missed, labels, health_words)
        self.claimed = ClaimedRequests()
        """What pods request by ResourceClaims."""
        self.pods = PodCache(resource, self._pod_touched, self.claimed)
        self.agents = AgentPods(agent_namespace, self._node_touched)
        self.heartbeats = AgentHeartbeats(self._status_of, silence_seconds)
        self.cpu = CpuInUse(self._node_touched)
        self.budgets = Budgets()
        self.claims = ResourceClaims(self._node_touched, self._claim_touched)
        """Of DRA; where nobody reads them there are none."""
        self.indexes = PodIndexes(self.nodes.locations, group_words, scheduler_names)
        self.holds = Holds()
        self.memory = PodMemory()
        sources = Sources(
            nodes=self.nodes,
            pods=self.pods,
            agents=self.agents,
            cpu=self.cpu,
            claims=self.claims,
            heartbeats=self.heartbeats,
            first_reports=self.memory.first_reports,
        )
        node_groups = NodeGroups(self.classes, group_label, expected)
        self._views = Views(sources, node_groups, self.fences, resource, tolerated_taints)

    @classmethod
    def configured(cls, config: ExtenderConfiguration) -> ClusterState:
        """Return an empty one, to be read as the configuration says."""
        return cls(
            resource=config.scheduling.resource,
            scheduler_names=config.scheduling.scheduler_names,
            tolerated_taints=config.scheduling.tolerated_taints,
            weights=config.scheduling.weights,
            agent_namespace=config.agents.namespace,
            silence_seconds=config.agents.silence,
            labels=config.scheduling.domain_labels,
            health_words=HealthWords(config.node_health.words),
            group_words=GroupWords(config.groups.sources),
            group_label=config.node_groups.label,
            expected=config.node_groups.topologies,
        )

    @property
    def synced(self) -> bool:
        """Whether nodes and pods have both been listed."""
        return self.nodes.synced and self.pods.synced

    @property
    def views(self) -> Mapping[str, NodeView]:
        """All nodes as they are now, by name; empty before the first sync."""
        self.refresh()
        return self._views.by_name

    @property
    def shapes(self) -> ShapeIndex:
        """The names of all nodes by shape."""
        self.refresh()
        return self._views.shapes

    @property
    def node_groups(self) -> NodeGroups:
        """What new nodes would be like."""
        self.refresh()
        return self._views.node_groups

    @property
    def conditions(self) -> NodeConditions:
        """The nodes in which something is not as it should be."""
        self.refresh()
        return self._views.conditions

    @property
    def sums(self) -> Sums:
        """What is added up over all nodes."""
        self.refresh()
        return self._views.sums

    def request_of(self, pod: Pod) -> PodRequest:
        """Return what a pod requests, by its containers or by its ResourceClaims; raises `RequestError`."""
        cached = self.pods.get(pod.metadata.uid)
        if cached is None or cached.claimed is None:
            return read_request(pod, self.resource, self.indexes.groups.words)
        if cached.claimed.request is None:
            raise RequestError("spec.resourceClaims", cached.claimed.refusal)
        return cached.claimed.request

    def heir_of(self, pod: GpuPod) -> Heir | None:
        """Return what a pod is as an heir; `None` where it has no owner, or its request cannot be read."""
        owner = successors_of(pod.pod)
        try:
            request = self.request_of(pod.pod).request
        except RequestError:
            return None
        return Heir(owner, request, pod.cpu_milli, memory_bytes(pod.pod)) if owner else None

    def map_to_dra(self, is_mapped: bool) -> None:
        """Take note of whether a DeviceClass maps the resource: then nodes where nobody offers it are kube-scheduler's."""
        self._views.map_to_dra(is_mapped=is_mapped)

    @property
    def claimed_for(self) -> Collection[str]:
        """The UIDs of the pods that have claims on any node."""
        self.refresh()
        return self._views.claimed_for

    def claimed_on(self, uid: str) -> Collection[str]:
        """Return the nodes on which a pod has claims."""
        self.refresh()
        return self._views.claimed_on(uid)

    def may_be_claimed_on(self, uid: str) -> frozenset[str]:
        """Return the same, and the nodes with claims of which this process does not know whether they were written."""
        views = self.views
        doubtful = self.memory.doubtful_claims.on(
            uid, lambda node: views[node].payloads.ledger.text if node in views else ""
        )
        return frozenset({*self._views.claimed_on(uid), *doubtful})

    def refresh(self) -> None:
        """Derive anew the views of all nodes that changed; every reader does that first."""
        if self.synced:
            self._views.refresh()

    def refreshing(self) -> Iterator[None]:
        """Do so in steps; whoever reads in between has the rest done at once."""
        if self.synced:
            yield from self._views.refreshing()

    def call_when_outdated(self, wake: Callable[[], object]) -> None:
        """Have this called whenever there is something to `refresh` again."""
        self._views.wake = wake

    def measured(self, measurements: Measurements) -> None:
        """Let these figures, and no others, stand in the place of predictions from now on."""
        if self.classes.measured(measurements):
            self._revalued()

    def listening(self, now: float) -> Search[list[str]]:
        """Take note of whose agent has written since the last call, at `now` (monotonic seconds); returns who fell silent.

        Topologies that changed too often are read once they have been still, one a step: there may be many at once.
        """
        self.indexes.gates.listen(now)
        self.indexes.departures.listen(now)
        yield from self.nodes.telling(now)
        self.agents.tell(now)
        changed = self.heartbeats.listen(now)
        self._views.outdated(changed)
        return sorted(filter(self.heartbeats.is_silent, changed))

    def set_baseline(self, node: str, claim: Claim) -> None:
        """Take the node's report as it is now for the last one that may be from before the claim's pod was gone.

        Call it after a live read of the node that followed the news that the pod is gone.
        """
        cached = self.nodes.get(node)
        if cached and node in self.claimed_on(claim.uid):  # what no claim is left of, nobody would ever forget
            self._views.later_reports.put(cached, claim)
            self._views.outdated((node,))

    def has_baseline(self, node: str, claim: Claim) -> bool:
        """Whether later reports of the node's agent decide about a claim whose pod is gone."""
        cached = self.nodes.get(node)
        return cached is not None and self._views.later_reports.serves(cached, claim)

    def is_asked(self, node: str, claim: Claim) -> bool:
        """Whether the node's agent is asked for a look that decides about a claim whose pod is gone."""
        cached = self.nodes.get(node)
        return cached is not None and self._views.later_reports.is_asked(cached, claim)

    def _revalued(self) -> None:
        self._views.shapes.forget_verdicts(self.values.typical)

    def _node_changed(self, name: str) -> None:
        self.heartbeats.node_changed(name)
        self._node_touched(name)

    def _node_touched(self, name: str) -> None:
        self._views.outdated((name,))

    def _status_of(self, name: str) -> str | None:
        cached = self.nodes.get(name)
        return (cached.payloads.status.text or "") if cached else None

    def _claim_touched(self, pod: str) -> None:
        """Take note that a ResourceClaim of a pod has changed: so does the standing of what its ledgers say."""
        self._views.outdated(self._views.claimed_on(pod))

    def _pod_touched(self, uid: str, nodes: set[str]) -> None:
        self._views.outdated(nodes)
        self._views.outdated(self._views.claimed_on(uid))
        pod = self.pods.get(uid)
        self.indexes.take(uid, pod)
        if pod is None:
            self.values.forget(uid)
            self.holds.release(uid)
            self.memory.gone(uid)
            return
        self.values.meet(
            uid,
            None if uid in self.indexes.stand_ins else kind_of(pod),
            running=pod.node is not None and not pod.stopped,
            owner=pod.pod.metadata.namespace,
        )
        if pod.node is not None:
            self.holds.release(uid)
            self.memory.bound(pod, pod.node, is_news=self.pods.synced)
        elif pod.is_alive and self.holds.awaits(successors_of(pod.pod)) and (heir := self.heir_of(pod)):
            self.holds.inherit(uid, heir)
