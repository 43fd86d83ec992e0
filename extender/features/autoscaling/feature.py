"""The rounds in which nodes are asked for: a placeholder for each pod that a new node would help, as long as it would.

- Only what filter refuses here is asked for here; of several extenders each knows the placeholders of all. For pods in the
  queue the replica that plans it asks.
- A placeholder goes when its pod is bound, gone, or waits for what a new node does not cure. Kubernetes ends it in any case.
- Whatever fails is due again in the next round.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, Self
from urllib.parse import quote

import msgspec

from extender.binding.outcome import BindTarget, Bound
from extender.cluster.caches.stand_ins import StandIn
from extender.cluster.objects.constraints import may_go
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.stands_for import StandsFor
from extender.cluster.state import ClusterState
from extender.core.feature import Core, Feature, Removal
from extender.core.queue_outlook import QueueOutlook
from extender.features.autoscaling import events
from extender.features.autoscaling.arrivals import Arrivals
from extender.features.autoscaling.job import LABELS, claim_template_creation, creation, deletion
from extender.features.autoscaling.limits import PlaceholderLimits
from extender.features.autoscaling.need import FreeCounts, Need, NoNeed, need_of
from extender.features.autoscaling.settings import AutoscalingSettings
from extender.features.autoscaling.without_room import WithoutRoom
from extender.kit.backoff import Backoff, Pauses
from extender.kit.clock import Clock, Instant
from extender.kit.fair_table import FairTable
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Round
from extender.kit.turns import in_turns
from extender.kubernetes.documents import BrokenStream, message_of, read_whole
from extender.kubernetes.events import EventRecorder, PodName
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, Send
from extender.telemetry.metrics import Declaration, Figures, Metrics, SeriesKind, read_gauges
from extender.verbs.filter_prioritize import is_refusal
from extender.verbs.wire import ExtenderArgs, ExtenderFilterResult
from topology.annotations import keys
from topology.effort import Search

NODE_REQUESTS: Final = Declaration(
    "gputopo_node_requests",
    "Placeholders for autoscalers, by outcome.",
    SeriesKind.COUNTER,
    labels=("outcome",),
    values=tuple(product(("asked", "failed", "served", "withdrawn", "expired"))),
)
PLACEHOLDERS: Final = read_gauges(
    {"placeholders": "Placeholders for autoscalers, not among the pods; absent without autoscaling."}
)
LOOK_SECONDS: Final = 5.0
"""Between two looks at what the pods that wait need."""
WAITING: Final = 64
"""Pods that are looked at, those that were refused last: each keeps the names of the nodes that refused it."""
QUEUED: Final = 16
"""Pods without room in the queue that are looked at, in turns: those that no new node helps go to the back of their line.

For each of them all nodes are looked at.
"""
NODES_AT_ONCE: Final = 256
"""In one step: about half a millisecond."""
_EXISTS: Final = 409
_GONE: Final = 404

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LastRefusal:
    """A pod's last refusal."""

    by: Collection[str]
    """All nodes that kube-scheduler's own filters let through."""
    at: Instant


@dataclass(slots=True, kw_only=True)
class Autoscaling(Feature):
    """The rounds of one extender."""

    name = "autoscaling"
    section = AutoscalingSettings
    declarations = (NODE_REQUESTS, *PLACEHOLDERS)

    state: ClusterState
    send: Send
    events: EventRecorder
    metrics: Metrics
    clock: Clock
    settings: AutoscalingSettings
    queue: QueueOutlook = field(default_factory=QueueOutlook)
    every_seconds: float = 1.0
    _refused: FairTable[str, LastRefusal] = field(default_factory=lambda: FairTable(WAITING))
    """By UID."""
    _without_room: WithoutRoom = field(default_factory=WithoutRoom)
    _standing: dict[str, StandIn] = field(default_factory=dict)
    """By the UID of the pod that waits, as of the last round."""
    _withdrawn: set[str] = field(default_factory=set)
    """Those of them that we have asked to be deleted."""
    _attempts: Backoff = field(init=False)
    _arrivals: Arrivals = field(init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _next_look: float = 0.0

    def __post_init__(self) -> None:
        self._attempts = Backoff(Pauses(self.settings.pause, self.settings.longest_pause))
        self._arrivals = Arrivals(self.state)

    @classmethod
    def of(cls, core: Core) -> Self | None:
        """Return the feature, `None` where it is not enabled."""
        settings = core.config.section(AutoscalingSettings)
        if not settings.enabled:
            return None
        return cls(
            state=core.state,
            send=core.watching.api.send,
            events=core.events,
            metrics=core.metrics,
            clock=core.clock,
            settings=settings,
            queue=core.queue,
            every_seconds=core.config.reconcile.interval,
        )

    @classmethod
    def removal(cls, pod: Pod) -> Removal | None:
        """Return how to remove a placeholder; a pod that somebody else calls one is theirs."""
        stands_for = StandsFor.read(pod)
        if stands_for is None or not LABELS.items() <= (pod.metadata.labels or {}).items():
            return None
        return Removal("placeholder", deletion(pod.metadata.namespace, stands_for.uid))

    def rounds(self) -> Iterable[Round]:
        """Return the one that keeps placeholders; a bind begins it early."""
        return (Round(name=self.name, work=self.round, every_seconds=self.every_seconds, wake=self._wake),)

    def figures(self) -> Figures:
        """Return how many placeholders there are."""
        return {"placeholders": len(self.state.indexes.stand_ins)}

    def after_filter(self, args: ExtenderArgs, result: ExtenderFilterResult) -> None:
        """Remember a pod that no node will do for; one that waits for its victims to leave asks for nothing."""
        metadata = args.pod.metadata
        is_nominated = args.pod.status.nominated_node_name
        if is_refusal(result) and not is_nominated and self.state.memory.refusals.of(metadata.uid) is not None:
            self._refused.put(metadata.uid, metadata.namespace, LastRefusal([*args.names], self.clock()))

    def after_bind(self, target: BindTarget, bound: Bound) -> None:
        """Begin the next round: the pod's placeholder, if it has one, goes before it asks for a node more."""
        if self._standing:
            self._wake.set()

    async def round(self) -> None:
        """Take away what is of no use any more, then ask for what is needed."""
        self._take_stock()
        now = self.clock()
        for uid, placeholder in self._standing.items():
            if uid not in self._withdrawn:
                await self._keep_or_withdraw(uid, placeholder, now)
        await self._withdraw_bound(now)
        if now.monotonic >= self._next_look:
            self._next_look = now.monotonic + LOOK_SECONDS
            await self._look(now)

    async def _keep_or_withdraw(self, uid: str, placeholder: StandIn, now: Instant) -> None:
        pod = self.state.pods.get(uid)
        if pod is None or not _waits(pod):
            await self._withdraw(uid)
        elif (came := self._arrivals.answer_to(placeholder, pod, now)) and await self._withdraw(uid):
            self._attempts.failed(uid, now.monotonic, pod.key[0])  # forgotten when the pod is bound
            self.events.record(events.node_came(PodName.of(pod), came))
            log.info("a node came for a placeholder", pod="/".join(pod.key), uid=uid, node=came)

    async def _withdraw_bound(self, now: Instant) -> None:
        """Have placeholders deleted that kube-scheduler has bound, as it does where no extender is asked: they hold GPUs."""
        for uid, placeholder in self._bound().items():
            if uid not in self._withdrawn and await self._withdraw(uid):
                self._attempts.failed(uid, now.monotonic, placeholder.stands_for.namespace)
                log.info("a placeholder was bound, and is deleted", uid=uid, placeholder=placeholder.name)

    def _bound(self) -> Mapping[str, StandIn]:
        return self.state.indexes.stand_ins.bound_by_pod(self.settings.namespace)

    def _take_stock(self) -> None:
        """See which placeholders there are now, and what became of those before."""
        standing = dict(self.state.indexes.stand_ins.by_pod(self.settings.namespace))
        bound = self._bound()
        for uid, gone in self._standing.items():
            if uid not in standing and uid not in bound:
                self._tell_end(uid, gone)
        self._standing = standing
        self._withdrawn.intersection_update({*standing, *bound})
        self._attempts.keep_only(self._refused, self.state.indexes.gates.queued, standing, bound)

    def _tell_end(self, uid: str, gone: StandIn) -> None:
        pod = self.state.pods.get(uid)
        if pod is not None and pod.node is not None:
            self.metrics.count(NODE_REQUESTS, "served")
        elif uid in self._withdrawn or pod is None:
            self.metrics.count(NODE_REQUESTS, "withdrawn")
        else:
            self.metrics.count(NODE_REQUESTS, "expired")
            log.warning("no node came for a placeholder", pod="/".join(pod.key), uid=uid, placeholder=gone.name)
            if math.isfinite(self._waits_since(uid)):  # else another extender asks, and knows how often it has
                pause = self._attempts.failed(uid, self.clock().monotonic, pod.key[0])
                if self.queue.is_here() or not pod.has_plan_gate:
                    self.events.record(events.node_did_not_come(PodName.of(pod), pause))

    async def _look(self, now: Instant) -> None:
        """Ask in the place of those that have waited long enough, and take back what is not needed."""
        counts, needs = FreeCounts(self.state), list[tuple[GpuPod, Need]]()
        for uid in [*self._refused]:
            refused, pod = self._refused.get(uid), self.state.pods.get(uid)
            if refused is None:
                continue
            if pod is None or self.state.memory.refusals.of(uid) is None:
                self._refused.pop(uid)
                continue
            await self._weigh(pod, refused, counts, needs, now)
        if self.queue.is_here():  # else what is remembered stays: a Lease may lapse for a moment
            await self._look_at_queue(counts, needs, now)
        await self._ask_for(needs, now)

    async def _look_at_queue(self, counts: FreeCounts, needs: list[tuple[GpuPod, Need]], now: Instant) -> None:
        queued = self.state.indexes.gates.queued
        without_room = ((uid, queued[uid].key[0]) for uid in self.queue.without_room() if uid in queued)
        await in_turns(self._without_room.update(without_room, now.monotonic))
        for pod in filter(None, map(self.state.pods.get, self._without_room.in_turn(QUEUED))):
            refused = LastRefusal(await in_turns(self._nodes_open_to(pod.pod)), now)
            if not await self._weigh(pod, refused, counts, needs, now) and pod.uid not in self._standing:
                self._without_room.to_back(pod.uid)

    async def _weigh(
        self, pod: GpuPod, refused: LastRefusal, counts: FreeCounts, needs: list[tuple[GpuPod, Need]], now: Instant
    ) -> bool:
        """Add to `needs` what a pod needs; where that is no node, return `False`: it goes without a placeholder."""
        await in_turns(counts.read(refused.by))
        need = need_of(self.state, pod, refused.by, counts, now)
        await asyncio.sleep(0)
        if isinstance(need, NoNeed):
            await self._do_without(pod, need, refused, now)
            return False
        needs.append((pod, need))
        return True

    def _nodes_open_to(self, pod: Pod) -> Search[list[str]]:
        """Return the nodes that labels and taints let a pod go to."""
        names = list[str]()
        for number, view in enumerate([*self.state.views.values()]):
            if number % NODES_AT_ONCE == NODES_AT_ONCE - 1:
                yield
            if may_go(pod, view.node):
                names.append(view.name)
        return names

    async def _ask_for(self, needs: Sequence[tuple[GpuPod, Need]], now: Instant) -> None:
        """Ask for as many nodes as the pods fill: those with the same request may go to one."""
        waiting = Counter(need.kind for _, need in needs)
        asked_for = Counter(need.kind for pod, need in needs if pod.uid in self._standing)
        paused = Counter(
            (pod.key[0], need.kind)
            for pod, need in needs
            if pod.uid not in self._standing and not self._attempts.may_begin(pod.uid, now.monotonic)
        )
        limits = PlaceholderLimits(self.settings.limit)
        for uid, placeholder in self._standing.items():
            limits.take(placeholder.stands_for.namespace, self.state.pods.get(uid))
        left = [*needs]
        while left:
            pod, need = min(left, key=lambda pending: (*limits.had_by(pending[0]), self._waits_since(pending[0].uid)))
            left.remove((pod, need))
            nodes = asked_for[need.kind] + paused[pod.key[0], need.kind]
            is_covered = waiting[need.kind] <= nodes * need.pods_per_node
            if pod.uid in self._standing or is_covered or not self._is_due(pod.uid, now):
                continue
            if why := limits.refusal(pod):
                self.events.record(events.node_not_asked(PodName.of(pod), why))
            elif await self._ask(pod, need):
                limits.take(pod.key[0], pod)
                asked_for[need.kind] += 1

    def _waits_since(self, uid: str) -> float:
        """Return since when a pod is refused, or has no room in the queue."""
        if uid in self.state.indexes.gates.queued and (since := self._without_room.since(uid)) is not None:
            return since
        refusal = self.state.memory.refusals.of(uid)
        return math.inf if refusal is None else refusal.since

    async def _do_without(self, pod: GpuPod, why: NoNeed, refused: LastRefusal, now: Instant) -> None:
        """Withdraw a placeholder whose pod waits for what autoscalers see themselves, or for what no node cures.

        A reason that was told before there was the placeholder is old news: another extender may have heard a newer one.
        """
        placeholder = self._standing.get(pod.uid)
        if placeholder is None:
            if why.is_final and self._is_due(pod.uid, now):
                self.events.record(events.node_not_asked(PodName.of(pod), why))
            return
        is_newer = now.monotonic - refused.at.monotonic < now.age_seconds(placeholder.created)
        if why is NoNeed.SEEN_BY_COUNT or (why is NoNeed.OTHER_REASON and is_newer):
            await self._withdraw(pod.uid)

    def _is_due(self, uid: str, now: Instant) -> bool:
        has_waited = now.monotonic - self._waits_since(uid) >= self.settings.after
        return has_waited and self._attempts.may_begin(uid, now.monotonic)

    async def _ask(self, pod: GpuPod, need: Need) -> bool:
        """Create a placeholder, if the pod still waits; returns whether there is one more now."""
        document = await self._read(pod)
        if document is None or not _is_waiting(document, pod.uid):
            return False
        status, body = await self._create(document, need)
        if status == _EXISTS:
            return True
        if status >= 300:
            self.metrics.count(NODE_REQUESTS, "failed")
            log.warning(
                "a placeholder could not be created", pod="/".join(pod.key), why=message_of(body), status=status
            )
            return False
        self.metrics.count(NODE_REQUESTS, "asked")
        self.events.record(events.node_asked(PodName.of(pod), need.gpus, need.groups, self.settings.life))
        log.info("asked for a node", pod="/".join(pod.key), uid=pod.uid, gpus=need.gpus, groups=need.groups)
        return True

    async def _create(self, pod: Mapping[str, Any], need: Need) -> tuple[int, bytes]:
        """Create a placeholder, and after it the template of its claim, without which no autoscaler looks at it."""
        label, resource, uid = self.state.node_groups.label, self.state.resource, pod["metadata"]["uid"]
        status, body = await self._try(creation(pod, need, label, resource, self.settings))
        if status >= 300 or not need.request.by_claim:
            return status, body
        job_uid = read_whole(body)["metadata"]["uid"]
        status, body = await self._try(claim_template_creation(uid, job_uid, need, self.settings))
        if status >= 300 and status != _EXISTS:
            await self._try(deletion(self.settings.namespace, uid))
            # Each attempt is four requests, and the same happens again where a right is missing.
            self._attempts.failed(uid, self.clock().monotonic, pod["metadata"]["namespace"])
        return status, body

    async def _withdraw(self, uid: str) -> bool:
        """Have a placeholder deleted; returns whether it will be."""
        status, body = await self._try(deletion(self.settings.namespace, uid))
        if status >= 300 and status != _GONE:
            log.warning("a placeholder could not be deleted", uid=uid, why=message_of(body), status=status)
            return False
        self._withdrawn.add(uid)
        return True

    async def _read(self, pod: GpuPod) -> Mapping[str, Any] | None:
        namespace, name = (quote(part, safe="") for part in pod.key)
        status, body = await self._try(Request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}"))
        try:
            return read_whole(body) if status == 200 else None
        except BrokenStream:
            return None

    async def _try(self, request: Request) -> tuple[int, bytes]:
        try:
            return await self.send(request)
        except Unavailable as error:
            return 503, msgspec.json.encode({"message": str(error)})


def _is_waiting(document: Mapping[str, Any], uid: str) -> bool:
    """Whether this pod waits, by kube-scheduler's own words or in the queue, and nothing that it waits for is on its way."""
    spec, status = document.get("spec", {}), document.get("status", {})
    if document["metadata"]["uid"] != uid or spec.get("nodeName") or status.get("nominatedNodeName"):
        return False
    if gates := [gate["name"] for gate in spec.get("schedulingGates", [])]:
        return gates == [keys.PLAN_GATE]
    conditions = status.get("conditions", [])
    return any(
        (condition["type"], condition.get("reason")) == ("PodScheduled", "Unschedulable") for condition in conditions
    )


def _waits(pod: GpuPod) -> bool:
    return pod.is_alive and pod.node is None
