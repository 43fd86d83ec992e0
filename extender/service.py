"""One extender at work: caches fed by two watches, verbs that read them, binds and releases that write.

Everything runs on one event loop, so the state needs no lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Self

from extender.binding.driver import Driver
from extender.binding.intents import Intent, Reply
from extender.binding.outcome import BindTarget, Bound, Outcome
from extender.binding.release import ClaimTimers
from extender.cluster.state import ClusterState
from extender.config.document import ExtenderConfiguration
from extender.core.binds import Binds
from extender.core.condition import Condition
from extender.core.core_rounds import core_rounds, optional_rounds
from extender.core.feature import Core, Feature
from extender.core.feature_set import FeatureSet
from extender.core.reconciler import Reconciler
from extender.core.second_looks import SecondLooks
from extender.inspect.history import History
from extender.kit.calls_first import CallsFirst
from extender.kit.clock import Clock, SteadyClock
from extender.kit.pace import Pace
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Rounds
from extender.kit.traces import Traces
from extender.kit.turns import in_turns
from extender.kubernetes import events
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.watching import Watching
from extender.telemetry.core import (
    API_REQUESTS,
    CORE,
    FAILED_ROUNDS,
    PODS_REFUSED,
    REFUSALS,
    WAITED_SECONDS,
    WATCH_OBJECTS,
)
from extender.telemetry.gauges import refused_of
from extender.telemetry.metrics import Figures, Metrics, Recent
from extender.verbs.filter_prioritize import is_refusal, prioritize_in_slices
from extender.verbs.preempt import Preemption, preempt
from extender.verbs.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    HostPriority,
)

PREEMPT_RATIO = 1 / 2
"""Of a bind's time that the search for victims may take: kube-scheduler waits for it, and schedules no other pod meanwhile."""

now = SteadyClock(time.monotonic, time.time)
"""Returns this moment on both clocks."""
log = structlog.get_logger(__name__)


class Extender:
    """All of one process but its sockets to kube-scheduler; at work while the context is open."""

    def __init__(
        self,
        config: ExtenderConfiguration,
        api: KubeApi,
        features: Sequence[type[Feature]] = (),
        *,
        clock: Clock = now,
        random: Random | None = None,
        traces: Traces | None = None,
    ) -> None:
        """Take time from `clock` and the event loop, and the spread of retries from `random`."""
        self.config = config
        self.traces = traces
        """Where spans of the verbs go, if they are wanted."""
        self._clock = clock
        self._api = api
        self.calls = CallsFirst()
        """Those that compute; a bind waits for the API server most of its time."""
        self.state = ClusterState.configured(config)
        declarations = (declaration for kind in features for declaration in kind.declarations)
        self.metrics = Metrics(config.digest, (*CORE, *declarations))
        self.history = History()
        """What pages show of the past; empty until a feature writes it."""
        self._events = events.EventRecorder(api.send)
        self._rounds = Rounds(partial(self.metrics.count, FAILED_ROUNDS), partial(self.metrics.begin, FAILED_ROUNDS))
        self._listed = asyncio.Event()
        """Set once there are views."""
        self._pace = Pace()
        watching = Watching(api, config.watch, random, partial(self.metrics.count, WATCH_OBJECTS))
        driver = Driver(self._execute, clock, config.scheduling.bind_deadline)
        self._filter = SecondLooks(self.state, clock, config.scheduling)
        self._binds = Binds(self.state, clock, driver)
        reconciler = Reconciler(
            state=self.state,
            timers=ClaimTimers(orphan_seconds=config.reconcile.orphan_after),
            driver=driver,
            lock_of=self._binds.of_nodes.plain,
            events=self._events,
            metrics=self.metrics,
        )
        self.condition = Condition.of(config, self.state, watching, self._rounds, reconciler, self._events)
        core = Core(
            config=config,
            state=self.state,
            clock=clock,
            driver=driver,
            lock_of=self._binds.of_nodes.plain,
            watching=watching,
            events=self._events,
            metrics=self.metrics,
            history=self.history,
            closed=self.condition.closed,
        )
        self.features = FeatureSet(features, core)
        self._exposition = Recent(self.metrics.exposition)
        self.metrics.watch(self.figures)
        self.metrics.watch_labels(PODS_REFUSED, lambda: refused_of(self.state))

    async def __aenter__(self) -> Self:
        """Start watching; nothing is decided before both lists have arrived."""
        self._rounds.start(core_rounds(self.condition, self._listed), self.synced)
        for feature in self.features:
            self._rounds.start(feature.rounds(), self.synced)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything; whatever was under way is in the API, or was never there."""
        await self._rounds.stop()

    def begin_checks(self) -> None:
        """Also check what needs further rights, or dry runs."""
        self._rounds.start(optional_rounds(self.condition, self._api.send, self.state.map_to_dra), self.synced)

    async def synced(self) -> None:
        """Wait until both lists have arrived, and all is derived that there is to derive."""
        await self._listed.wait()

    async def failure(self) -> None:
        """Wait until something dies that should run for ever, and raise what it died of."""
        await self._rounds.failure()

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """Answer which of the nodes may take the pod."""
        self.features.notify(lambda feature: feature.before_filter(args))
        if any(feature.paces_scheduling for feature in self.features):
            await self._pace.room()
        with self.calls.call():
            result = await self._filter.filter(args)
        if is_refusal(result):
            self._report_refusal(args, result)
        self.features.notify(lambda feature: feature.after_filter(args, result))
        return result

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """Score the nodes that are left."""
        with self.calls.call():
            return await in_turns(prioritize_in_slices(self.state, args, self._clock(), self.config.scheduling.hold))

    async def preempt(self, args: ExtenderPreemptionArgs) -> Preemption:
        """Choose the victims whose GPUs form what the pod asks for, in what time there is; others are served meanwhile."""
        seconds = PREEMPT_RATIO * self.config.scheduling.bind_deadline
        with self.calls.call():
            return await in_turns(preempt(self.state, args, self._clock, budget_seconds=seconds))

    async def bind(self, args: ExtenderBindingArgs) -> Outcome:
        """Bind a pod to a node, with exact GPUs, by the deadline or not at all."""
        target = BindTarget(args.pod_namespace, args.pod_name, args.pod_uid, args.node)
        refusal = self.state.memory.refusals.of(target.uid)
        with self._pace.bind():
            outcome = await self._binds.bind(target)
        if isinstance(outcome, Bound):
            if outcome.record.bandwidth is not None:  # one GPU is no news
                pod = events.PodName(target.namespace, target.name, target.uid)
                self._events.record(events.placed(pod, target.node, outcome.record))
            if refusal:
                for reason in refusal.reasons:
                    self.metrics.observe(WAITED_SECONDS, self._clock().monotonic - refusal.since, reason)
            self.features.notify(lambda feature: feature.after_bind(target, outcome))
        return outcome

    def exposition(self) -> bytes:
        """Return all series in Prometheus' text format, at most `RECENT_SECONDS` old."""
        return self._exposition.at(self._clock().monotonic)

    def figures(self) -> Figures:
        """Return the gauges as they are now; one whose value is not known yet is absent."""
        return self.condition.figures(feature.figures() for feature in self.features)

    async def _execute(self, intent: Intent, timeout_seconds: float) -> Reply:
        reply = await self._api.execute(intent, timeout_seconds)
        self.metrics.count(API_REQUESTS, type(intent).__name__, type(reply).__name__)
        return reply

    def _report_refusal(self, args: ExtenderArgs, result: ExtenderFilterResult) -> None:
        metadata = args.pod.metadata
        if refusal := self.state.memory.refusals.of(metadata.uid):
            for reason in refusal.reasons:
                self.metrics.count(REFUSALS, reason)
        if self._events.is_news(metadata.uid, events.UNSATISFIED):
            pod = events.PodName.of_metadata(metadata)
            self._events.record(events.unsatisfied(pod, result.reasons))
