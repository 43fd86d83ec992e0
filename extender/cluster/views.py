"""The views of all nodes, kept in step with the caches that they are derived from, and what is looked up by them.

A view is derived again, whole, when it is needed after its node, a claim on it or a pod bound to it has changed. So
nothing here can drift.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from extender.cluster.caches.agents import AgentHeartbeats, AgentPods
from extender.cluster.caches.cpu import CpuInUse
from extender.cluster.caches.node_cache import KnownNode, NodeCache
from extender.cluster.caches.pod_cache import PodCache
from extender.cluster.caches.publishers import Publishers, recorded_gpus
from extender.cluster.caches.resource_claims import ResourceClaims
from extender.cluster.candidates.node_groups import Gives, NodeGroups
from extender.cluster.candidates.openness import Surroundings
from extender.cluster.candidates.shape_index import ShapeIndex
from extender.cluster.conditions import NodeConditions
from extender.cluster.derivation import derive
from extender.cluster.node_view import NodeView
from extender.cluster.objects.constraints import why_set_aside
from extender.cluster.ownership.evidence import Evidence
from extender.cluster.ownership.fences import Fences
from extender.cluster.ownership.first_reports import FirstReports
from extender.cluster.ownership.later_reports import LaterReports
from extender.cluster.sums import Sums
from topology.annotations import keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What views are derived from."""

    nodes: NodeCache
    pods: PodCache
    agents: AgentPods
    cpu: CpuInUse
    claims: ResourceClaims
    heartbeats: AgentHeartbeats
    first_reports: FirstReports


class Views:
    """One view per node, those to be derived anew, and the nodes by what their views say."""

    def __init__(
        self,
        sources: Sources,
        node_groups: NodeGroups,
        fences: Fences,
        resource: str,
        tolerated: Collection[str] = (),
    ) -> None:
        """Begin without a node; `node_groups` and `fences` hear of every view, and `resource` counts GPUs.

        `tolerated` are the keys of taints that all pods with GPUs tolerate.
        """
        self.by_name: dict[str, NodeView] = {}
        self.conditions = NodeConditions()
        self.shapes = ShapeIndex()
        self.node_groups = node_groups
        self.sums = Sums()
        self.later_reports = LaterReports(sources.pods.runs_as)
        self._sources = sources
        self._fences = fences
        self._resource = resource
        self._tolerated = frozenset((resource, *tolerated))
        self._is_mapped_to_dra = False
        self._publishers = Publishers()
        self._claimed_on: dict[str, set[str]] = {}
        self._dirty: set[str] = set()
        self._batch: list[str] = []
        """Those of them that are under way, the next one last."""
        self.wake: Callable[[], object] = lambda: None
        """Is called when there is something to `refresh`."""

    def outdated(self, names: Iterable[str]) -> None:
        """Take note of nodes whose views are to be derived anew."""
        was_up_to_date = not self._dirty
        self._dirty.update(names)
        if was_up_to_date and self._dirty:
            self.wake()

    @property
    def claimed_for(self) -> Collection[str]:
        """The UIDs of the pods that have claims, as of the views derived last."""
        return self._claimed_on.keys()

    def claimed_on(self, uid: str) -> Collection[str]:
        """Return the nodes on which a pod has claims, as of the views derived last."""
        return self._claimed_on.get(uid, ())

    def map_to_dra(self, *, is_mapped: bool) -> None:
        """Take note of whether a DeviceClass maps the resource."""
        self._is_mapped_to_dra = is_mapped
        self.outdated(self.by_name)

    def refresh(self) -> None:
        """Derive anew what is outdated, and whatever that brings about."""
        for _ in self.refreshing():
            pass

    def refreshing(self) -> Iterator[None]:
        """Do so one view after the other; between two of them anybody may `refresh`, or hear of more."""
        while self._batch or self._dirty:
            if not self._batch:
                self._batch = sorted(self._dirty, reverse=True)
                self._dirty.clear()
            self._derive(self._batch.pop())
            yield

    def _derive(self, name: str) -> None:
        sources = self._sources
        cached, before = sources.nodes.get(name), self.by_name.pop(name, None)
        self.conditions.put(name, None)  # what they name has a view, also where `derive` raises
        gpus = cached.payloads.topology.value if cached else None
        self._dirty |= self._publishers.publish(
            name, gpus.uuids if gpus else (), recorded_gpus(cached.payloads) if cached else ()
        )
        if cached is None:
            self.sums.put(name, None)
            self.shapes.put(name, None)
            self.node_groups.remove(name)
            self._index_claims(name, before, None)
            self._fences.mended(name)
            return
        evidence = Evidence(cached, sources.pods, sources.first_reports, self.later_reports, sources.claims)
        bound, surroundings = sources.pods.bound_to(name), self._surroundings(cached)
        payloads = sources.nodes.with_parts(cached, surroundings.parts)
        view = derive(cached.node, payloads, bound, evidence, surroundings)
        self.by_name[name] = view
        self.conditions.put(name, view)
        self.sums.put(name, view)
        self.shapes.put(name, view.shape)
        labels, topology_class = cached.node.metadata.labels or {}, view.shape.topology_class
        gives = Gives.BY_CLAIM if view.by_claim else Gives.BY_PLUGIN if view.plugin_chooses else Gives.BY_PLAN
        self.node_groups.put(name, labels, topology_class, gives)
        self._index_claims(name, before, view)
        if view.is_broken:
            self._fences.lost(name, cached.payloads.ledger if cached.payloads.had_ledger else None)
        else:
            self._fences.mended(name)

    def _surroundings(self, cached: KnownNode) -> Surroundings:
        name, gpus = cached.name, cached.payloads.topology.value
        is_offered = cached.node.offers(self._resource)
        # A device plugin may offer the same MIG devices, and kube-scheduler gives those away without us.
        is_plugins = is_offered or cached.node.offers_any_of((keys.MIG_PREFIX,))
        by_claim = not is_plugins and self._sources.claims.allocates_on(name)
        parts = self._sources.claims.parts_of(name) if by_claim else None
        not_owned, observed = self._publishers.not_owned(name), cached.payloads.observed.value
        return Surroundings(
            is_duplicate_publisher=bool(not_owned) and gpus is not None and not_owned.issuperset(gpus.uuids),
            not_owned=not_owned,
            agent_is_silent=self._sources.heartbeats.is_silent(name),
            agent_is_ready=self._sources.agents.is_ready(name),
            agent_restarts=self._sources.agents.restarts(name),
            is_left_to_dra=self._is_mapped_to_dra and not is_offered and not by_claim,
            is_for_claims_alone=not by_claim and self._is_for_claims_alone(cached),
            by_claim=by_claim,
            free_cpu_milli=self._sources.cpu.free_milli(cached.node),
            signs=cached.signs,
            dra=self._sources.claims.on(name, observed.claimed if observed else (), parts),
            parts=parts,
            paused=cached.paused,
            set_aside=why_set_aside(cached.node, self._tolerated),
        )

    def _is_for_claims_alone(self, cached: KnownNode) -> bool:
        doors = (self._resource, keys.SHARE_RESOURCE, keys.MIG_PREFIX)
        return self._sources.claims.slices.has(cached.name) and cached.node.offers_none_of(doors)

    def _index_claims(self, name: str, before: NodeView | None, view: NodeView | None) -> None:
        old = {claim.uid for claim, _ in before.claims} if before else set()
        new = {claim.uid for claim, _ in view.claims} if view else set()
        for uid in new - old:
            self._claimed_on.setdefault(uid, set()).add(name)
        for uid in old - new:
            self.later_reports.drop(name, uid)
            self._claimed_on[uid].discard(name)
            if not self._claimed_on[uid]:
                del self._claimed_on[uid]
