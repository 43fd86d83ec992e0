"""What a pod asks of the cluster, put to it: its own request, and that it be where its group goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from msgspec.structs import replace

from extender.cluster.candidates.groups import PlaceOf, fitting_for, key_of
from extender.cluster.candidates.holds import Held
from extender.cluster.objects.gpu_pods import owner_of
from extender.cluster.objects.group_words import GroupKey
from extender.cluster.objects.kinds import Pod
from extender.cluster.rails import RailsOfGroup
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.verbs.names import Names
from extender.verbs.ranking import Ranking
from topology.placement.group import Progress, narrow
from topology.placement.verdict import Reason, Rejection
from topology.request.domains import GroupRequest
from topology.request.gpu_request import AcceptedDevices, GpuRequest

ELSEWHERE = Rejection(
    Reason.GROUP, "not in the domain that the pod's group fills now", remedy="the pod goes to that domain"
)
CLAIMED_ELSEWHERE = Rejection(
    Reason.CLOSED, "the pod has claims on another node, which cannot be dropped", remedy="the pod goes to that node"
)


@dataclass(frozen=True, slots=True)
class PodContext:
    """One pod, as of one moment."""

    pod: Pod
    request: GpuRequest
    group: GroupRequest | None
    now: Instant
    fallbacks: tuple[GpuRequest, ...] = ()
    """What the planner may meet instead, in order."""
    accepted_devices: tuple[AcceptedDevices, ...] = ()
    """Of `request` and each of `fallbacks`; pods with equal values accept the same devices by their ResourceClaims."""

    @classmethod
    def read(cls, state: ClusterState, pod: Pod, now: Instant) -> Self:
        """Read a pod; raises `RequestError`."""
        waited_seconds = state.indexes.gates.waited_seconds(pod, now)
        cached = state.pods.get(pod.metadata.uid)
        if cached is not None and cached.pod.json_bytes:  # kube-scheduler sends it in a text of its own
            pod = replace(pod, json_bytes=cached.pod.json_bytes)
        read = state.request_of(pod)
        group = read.group_at_age(waited_seconds)
        if group is not None:
            group = state.indexes.groups.with_size(key_of(pod, group), group)
        fallbacks = read.fallbacks_at_age(waited_seconds)
        return cls(pod, read.at_age(waited_seconds), group, now, fallbacks, read.accepted_devices)

    def away(self, state: ClusterState) -> list[str]:
        """Return the nodes that step back from the pod, those first that will be back first."""
        return state.memory.setbacks.away(self.pod.metadata.uid, self.owner, self.now.monotonic)

    def rank_for_now(self, state: ClusterState, names: Names) -> Ranking:
        """Rank these nodes beside what is held for others, and without those that step back.

        If no other node fits, these count again, in turn. If none fits even then, holds yield. To try a node once more is
        in vain at worst, while held GPUs are on their way to another pod. Those of pods that are bound together with this
        one, or not at all, never yield.
        """
        away = [name for name in self.away(state) if name in names]
        tried = [names.without(away), names.without(away[1:]), names] if away else [names]
        held_for_others = state.holds.others(self.pod.metadata.uid, self.now.monotonic)
        for yielding in (False, True) if held_for_others else (False,):
            kept = self.kept(state) if yielding else {}
            for some in tried:
                ranking = self._rank(state, some, held_for_others, kept, yielding=yielding)
                if ranking.best is not None:
                    return ranking
        return ranking

    def kept(self, state: ClusterState) -> dict[str, Held]:
        """Return node → what is held there for other pods and does not yield to this one."""
        uid = self.pod.metadata.uid
        return state.holds.kept(uid, self.now.monotonic, state.memory.gangs.beside(uid))

    def _rank(
        self,
        state: ClusterState,
        names: Names,
        held_for_others: Mapping[str, Held],
        kept: Mapping[str, Held],
        *,
        yielding: bool,
    ) -> Ranking:
        """Rank these nodes; of a group's pod only those count where the group goes.

        A pod whose claims cannot be dropped just now goes where it has them: a bind to any other node would be refused.
        """
        uid, namespace = self.pod.metadata.uid, self.pod.metadata.namespace
        rails = RailsOfGroup(state, uid, self.now.monotonic)

        def ranking(request: GpuRequest) -> Ranking:
            return Ranking(
                state, uid, request, names, held_for_others, rails, namespace=namespace, yielding=yielding, kept=kept
            )

        ranked = ranking(self.request)
        claimed = state.claimed_on(uid)
        if claimed and not state.memory.claim_drops.may_begin(uid, self.now.monotonic):
            ranked = ranked.within(frozenset(claimed), CLAIMED_ELSEWHERE)
        if self.group is None or ranked.best is None:
            return ranked
        progress = self.progress(state)
        held, locations = state.holds.places(self.now.monotonic), state.nodes.locations
        reserved = state.indexes.groups.reserved(
            self._key, self.request.gpus or 1, self._on_the_way(state), held, self.now.age_seconds
        )
        census = ranked.census(locations)
        fitting = fitting_for(self.request, progress.rest, lambda request: ranking(request).fitting(census, locations))
        answer = narrow(self.group, progress, fitting, reserved)
        if isinstance(answer, Rejection):
            return ranked.within(frozenset(), answer)
        there = (name for name in names.all if locations.get(name) in answer)
        return ranked.within(frozenset(there), ELSEWHERE)

    def progress(self, state: ClusterState) -> Progress:
        """Return how far the pod's group has come, without this pod."""
        size = self.group.size if self.group else 1
        return state.indexes.groups.progress(self._key, size, self._on_the_way(state), self.pod.metadata.uid)

    def siblings_on(self, state: ClusterState) -> list[str]:
        """Return the nodes of the group's other pods, in order, each once."""
        return sorted(set(state.indexes.groups.nodes(self._key, self._on_the_way(state), self.pod.metadata.uid)))

    def may_evict_on(self, state: ClusterState, nodes: Iterable[str]) -> frozenset[str]:
        """Return the nodes on which evictions can help the pod.

        A group that requires a domain needs room where it is. One that has not begun evicts nobody: for one pod alone it would
        be in vain.
        """
        every = frozenset(nodes)
        if self.group is None or not self.group.required:
            return every
        level, progress = self.group.level, self.progress(state)
        if not progress.placed:
            return every if progress.rest == 1 else frozenset()
        used = {place.domain(level) for place in progress.placed} - {(level, None)}
        places = state.nodes.locations
        return frozenset(node for node in every if node in places and places[node].domain(level) in used)

    def may_evict_together(self, state: ClusterState, nodes: Iterable[str]) -> list[str]:
        """Return the same where all pods of the group are tried at once: a group that has not begun may begin anywhere."""
        listed = [*dict.fromkeys(nodes)]
        if self.group is None or not self.group.required or not self.progress(state).placed:
            return listed
        helpful = self.may_evict_on(state, listed)
        return [name for name in listed if name in helpful]

    @property
    def owner(self) -> str:
        """What made the pod, and will make another one in its place."""
        return owner_of(self.pod)

    @property
    def _key(self) -> GroupKey:
        return key_of(self.pod, self.group or GroupRequest(""))

    def _on_the_way(self, state: ClusterState) -> PlaceOf:
        held = state.holds.places(self.now.monotonic)
        return lambda uid: held.get(uid) or min(state.claimed_on(uid), default=None)
