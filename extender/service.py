"""One extender at work: caches fed by two watches, verbs that read them, binds and releases that write.

Everything runs on one event loop, so the state needs no lock. Binds to one node follow each other here up to their Bindings;
safety does not depend on that, only the time that would be lost on conflicts.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Any, Self

from extender.background.derivation import go_on_searching, keep_appraised, keep_derived
from extender.background.device_classes import DeviceClasses
from extender.background.device_watch import DeviceWatch
from extender.background.policies import Guard
from extender.background.preconditions import Preconditions
from extender.background.reconciler import Upkeep
from extender.background.watches import watches
from extender.binding.bind import bind
from extender.binding.driver import Driver
from extender.binding.intents import BindPod, Done, Intent, Reply
from extender.binding.outcome import BindTarget, Bound, Failure, NotBound, Outcome
from extender.binding.release import Attention
from extender.cluster.candidates.gangs import gang_of
from extender.cluster.objects.kinds import Node, Pod
from extender.config import ExtenderConfiguration
from extender.configured import state_of
from extender.features.autoscaling.feature import Autoscaling
from extender.features.group_sizes.feature import SizeWatch
from extender.features.measured.feature import MeasuredFile
from extender.features.quality.feature import Quality
from extender.features.sick_gpus.feature import SickGpus
from extender.features.steering.feature import Nominating
from extender.features.waking.feature import Waking
from extender.kit.clock import Clock, SteadyClock
from extender.kit.keyed_locks import KeyedLocks
from extender.kit.pace import Pace
from extender.kit.patience import Patience
from extender.kit.traces import Traces
from extender.kit.turns import in_turns
from extender.kubernetes import events
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Reflector
from extender.kubernetes.watching import Watching
from extender.telemetry.gauges import gauges_of, refused_of
from extender.telemetry.metrics import Figures, Metrics, Recent
from extender.verbs.filter_prioritize import filter_in_slices, is_refusal, is_undecided, prioritize_in_slices
from extender.verbs.preempt import Preemption, preempt
from extender.verbs.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    HostPriority,
)

CLAIMS_UNLISTED = "ResourceClaims have not been listed yet"
EXPOSITION_SECONDS = 1.0
"""An exposition serves everybody for so long: it costs milliseconds, and whoever reaches the port may ask."""
PREEMPT_RATIO = 1 / 2
"""Of a bind's time that the search for victims may take: kube-scheduler has one time-out for all verbs, and that of a bind fits
into it. It schedules nobody else meanwhile."""
NEWS_SECONDS = 0.05
"""How much later than kube-scheduler we may hear of a change, usually far less."""
SEARCH_SECONDS = 0.05
"""After which a call that waits for searches looks again; most take less."""
WAIT_RATIO = 2 / 3
"""Of a bind's time that it may wait for its turn; one that begins too late to end would only leave a claim in doubt."""


now = SteadyClock(time.monotonic, time.time)
"""Returns this moment on both clocks."""


class Extender:
    """All of one process but its sockets to kube-scheduler; at work while the context is open."""

    def __init__(
        self,
        config: ExtenderConfiguration,
        api: KubeApi,
        *,
        clock: Clock = now,
        random: Random | None = None,
        traces: Traces | None = None,
    ) -> None:
        """Take time from `clock` and the event loop, and the spread of retries from `random`."""
        self.config = config
        self.traces = traces
        """Where spans of the verbs go, when somebody wants them."""
        self._clock = clock
        self.state = state_of(config)
        self.metrics = Metrics(config.digest)
        self.metrics.watch(self.figures, lambda: refused_of(self.state))
        self._exposition = Recent(self.metrics.exposition, EXPOSITION_SECONDS)
        self._api = api
        self._events = events.EventRecorder(api.send)
        self.guard = Guard(api.send, self.state.nodes)
        """Checks the admission policies when somebody lets it."""
        self.device_classes = DeviceClasses(api.send, config.scheduling.resource, self.state.map_to_dra)
        """Checks whether one maps our resource when somebody lets it."""
        watching = Watching(api, config.watch, random, self.metrics.burdened)
        self.devices = DeviceWatch(watching, self.state.claims, ask_again_seconds=config.policies.look)
        """Follows what ResourceClaims hold, where it may."""
        self.sizes = SizeWatch(
            watching, self.state.group_sizes, config.groups.sources, ask_again_seconds=config.policies.look
        )
        """Follows how many pods groups have, when somebody wants it."""
        self._preconditions = Preconditions(api.send, self.state.pods)
        self._node_locks = KeyedLocks()
        self._pod_locks = KeyedLocks()
        """By UID: two binds of a pod at once would not know of each other's claims."""
        self._driver = Driver(self._execute, clock, config.scheduling.bind_deadline)
        self._upkeep = Upkeep(
            state=self.state,
            attention=Attention(orphan_seconds=config.reconcile.orphan_after),
            driver=self._driver,
            turn=self._node_locks.plain,
            events=self._events,
            metrics=self.metrics,
        )
        self._sick_gpus = SickGpus(
            state=self.state,
            send=api.send,
            events=self._events,
            metrics=self.metrics,
            clock=clock,
            may_evict=config.sick_gpus.evict,
        )
        self._autoscaling = Autoscaling(
            state=self.state,
            send=api.send,
            events=self._events,
            metrics=self.metrics,
            clock=clock,
            settings=config.autoscaling,
        )
        self._nominating = Nominating(self.state, self._driver, clock, self.metrics, config)
        self._waking = Waking(self.state, self._driver, clock, self.closed)
        self.measured = MeasuredFile(config.measured.file, self.state) if config.measured.file else None
        """What stands in the place of predictions, when somebody has measured."""
        pods_to_come = config.scheduling.weights.pods_to_come
        self.quality = Quality(self.state, self.metrics, clock, pods_to_come=pods_to_come)
        """Judges what was bound, and remembers it."""
        self._pace = Pace()
        self._patience = Patience(filled_at=clock().monotonic)
        self._patience_for_news = Patience(filled_at=clock().monotonic)
        self.watches = watches(watching, self.state)
        """That of budgets watches when somebody lets it."""
        self._reflectors = self.watches.needed
        self._derived = asyncio.Event()
        """Set once there are views."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        """Start watching; nothing is decided before both lists have arrived."""
        every_seconds = self.config.reconcile.interval
        work: dict[str, Coroutine[Any, Any, None]] = {
            f"{reflector.name}-watch": reflector.run() for reflector in self._reflectors
        }
        work |= {
            "events": self._events.run(),
            "reconcile": self._once_known(lambda: self._upkeep.run(every_seconds)),
            "preconditions": self._once_known(self._preconditions.follow),
            "views": self._derive(),
            "values": self._appraise(),
            "searches": go_on_searching(self.state.effort),
            "sick-gpus": self._once_known(lambda: self._sick_gpus.run(every_seconds)),
            "waking": self._once_known(lambda: self._waking.run(every_seconds)),
            "quality": self._once_known(self.quality.run),
        }
        if self.measured:
            self.measured.look()
            work["measured"] = self.measured.run(self.config.measured.reread)
        if self.config.autoscaling.enabled:
            work["autoscaling"] = self._once_known(lambda: self._autoscaling.run(every_seconds))
        work |= {"nominating": self._nominating.run(self.synced)} if self.config.steering.enabled else {}
        work["resourceclaims"] = self.devices.run()
        work |= {"group-sizes": self.sizes.run()} if self.config.groups.read_sizes else {}
        self._tasks = {name: asyncio.create_task(coroutine, name=name) for name, coroutine in work.items()}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything; whatever was under way is in the API, or was never there."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def synced(self) -> None:
        """Wait until both lists have arrived, and all is derived that there is to derive."""
        await self._derived.wait()

    async def failure(self) -> None:
        """Wait until something dies that should run for ever, and raise what it died of."""
        await asyncio.gather(*self._tasks.values())

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """Answer which of the nodes may take the pod; where none may, after what is known a moment later, and what is searched.

        kube-scheduler asks again only when something happens in the cluster. What made it ask, even our own write of a ledger, it
        may have heard of before us; and a search that ends is nothing that happens. Others are served meanwhile. A PodGroup that
        was refused before is answered at once: kube-scheduler tries it again with every change, and waits for each answer.
        """
        is_known = gang_of(args.pod) is not None and self.state.refusals.of(args.pod.metadata.uid) is not None
        self._nominating.asked(args.pod.metadata.uid, len(args.names))
        if self.config.steering.enabled:  # else it is busy for longer with each pod than a bind takes
            await self._pace.room()
        result = await self._filter(args)
        if is_refusal(result) and not is_known:
            result = await self._filter_after_news(args, result)
        if is_undecided(result):
            result = await self._filter_after_searches(args, result)
        refused = is_refusal(result)
        if refused:
            self._tell_refused(args, result)
        self._waking.answered(args, refused=refused)
        return result

    async def _filter_after_news(self, args: ExtenderArgs, refused: ExtenderFilterResult) -> ExtenderFilterResult:
        began, namespace = self._clock().monotonic, args.pod.metadata.namespace
        if self._patience_for_news.left(namespace, began) < NEWS_SECONDS:
            return refused
        self._patience_for_news.spend(namespace, NEWS_SECONDS)
        await asyncio.sleep(NEWS_SECONDS)
        return await self._filter(args)

    async def _filter_after_searches(self, args: ExtenderArgs, result: ExtenderFilterResult) -> ExtenderFilterResult:
        began, namespace = self._clock().monotonic, args.pod.metadata.namespace
        until = began + self._patience.left(namespace, began)
        while is_undecided(result) and (now := self._clock().monotonic) < until:
            await asyncio.sleep(min(SEARCH_SECONDS, until - now))
            result = await self._filter(args)
        self._patience.spend(namespace, self._clock().monotonic - began)
        return result

    async def _filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        limits = self.config.scheduling
        return await in_turns(filter_in_slices(self.state, args, self._clock(), limits.candidates, limits.hold))

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """Score the nodes that are left."""
        return await in_turns(prioritize_in_slices(self.state, args, self._clock(), self.config.scheduling.hold))

    async def preempt(self, args: ExtenderPreemptionArgs) -> Preemption:
        """Choose the victims whose GPUs form what the pod asks for, in what time there is; others are served meanwhile."""
        seconds = PREEMPT_RATIO * self.config.scheduling.bind_deadline
        return await in_turns(preempt(self.state, args, self._clock, budget_seconds=seconds))

    async def bind(self, args: ExtenderBindingArgs) -> Outcome:
        """Bind a pod to a node, with exact GPUs, by the deadline or not at all."""
        with self._pace.bind():
            return await self._bind(args)

    async def _bind(self, args: ExtenderBindingArgs) -> Outcome:
        target = BindTarget(args.pod_namespace, args.pod_name, args.pod_uid, args.node)
        refusal = self.state.refusals.of(target.uid)
        deadline = self._driver.deadline()
        pod, lock = self._pod_locks.of(target.uid), self._node_locks.of(target.node)
        if not await pod.take(self._driver.work_timeout_seconds * WAIT_RATIO):
            return NotBound(Failure.NO_ANSWER, "another bind of the pod took all the time")

        async def execute(intent: Intent, timeout_seconds: float) -> Reply:
            if not isinstance(intent, BindPod):
                return await self._execute(intent, timeout_seconds)
            lock.leave()  # the ledger says who has what: the next bind may begin
            reply = await self._execute(intent, timeout_seconds)
            if not isinstance(reply, Done):  # what comes now may write the ledger once more
                await lock.take(WAIT_RATIO * (deadline - self._clock().monotonic))
            return reply

        try:
            if not await lock.take(WAIT_RATIO * (deadline - self._clock().monotonic)):
                return NotBound(Failure.NO_ANSWER, "other binds to the node took all the time")
            steps = bind(self.state, target, self._clock, deadline=deadline)
            outcome = await replace(self._driver, execute=execute).drive(steps, deadline)
        finally:
            lock.leave()
            pod.leave()
        if isinstance(outcome, Bound):
            self._autoscaling.bound()
            self._tell(target, outcome)
            if outcome.chosen:
                self.quality.bound(target, outcome.chosen)
            if refusal:
                self.metrics.waited(refusal.reasons, self._clock().monotonic - refusal.since)
        return outcome

    def closed(self) -> str | None:
        """Return why no verb is answered now."""
        if not self.state.synced:
            return "the cluster has not been listed yet"
        if not self.devices.has_settled:
            return CLAIMS_UNLISTED
        if why := self._unfenced():
            return why
        return self._unguarded() if self.config.policies.required else None

    def life(self) -> dict[str, str | None]:
        """Return every task, and what it died of; a dead one is cured by a restart only."""
        return {name: _cause_of_death(task) for name, task in self._tasks.items()}

    def readiness(self) -> dict[str, str | None]:
        """Return every condition for being asked, and what is missing."""
        checks = {f"{reflector.name}-watch": self._complaint(reflector) for reflector in self._reflectors}
        tried = self._preconditions.tried
        checks["binding-preconditions"] = self._unfenced() if tried else "have not been tried yet"
        checks["resourceclaims"] = None if self.devices.has_settled else CLAIMS_UNLISTED
        checks["ledgers"] = None if self._upkeep.had_a_round else "have not been looked at yet"
        return checks | ({"policies": self._unguarded()} if self.config.policies.required else {})

    def exposition(self) -> bytes:
        """Return all series in Prometheus' text format, at most `EXPOSITION_SECONDS` old."""
        return self._exposition.at(self._clock().monotonic)

    def figures(self) -> Figures:
        """Return the gauges as they are now; one whose value is not known yet is absent."""
        clock = asyncio.get_running_loop()
        known = {
            "watch_silence_seconds": max(clock.time() - reflector.heard_at for reflector in self._reflectors),
            "events_dropped": self._events.dropped,
            "preconditions_honoured": self._preconditions.honoured,
            "policies_in_force": self.guard.in_force,
            "budgets_known": self.state.budgets.known,
            "resource_claims_watched": self.devices.is_watching,
            "group_sizes_read": self.sizes.is_reading,
        }
        figures = {name: value for name, value in known.items() if value is not None}
        figures |= self.measured.figures() if self.measured else {}
        return {**gauges_of(self.state), **figures}

    def _unguarded(self) -> str | None:
        return None if self.guard.in_force else "the admission policies are not known to be in force"

    def _unfenced(self) -> str | None:
        ignored = self._preconditions.honoured is False
        return "the API server ignores the preconditions of a Binding" if ignored else None

    async def _execute(self, intent: Intent, timeout_seconds: float) -> Reply:
        reply = await self._api.execute(intent, timeout_seconds)
        self.metrics.replied(type(intent).__name__, type(reply).__name__)
        return reply

    async def _derive(self) -> None:
        await asyncio.gather(*(reflector.synced.wait() for reflector in self._reflectors))
        await keep_derived(self.state, self._derived.set)

    async def _once_known(self, rounds: Callable[[], Awaitable[None]]) -> None:
        """Begin with these once the cluster is known."""
        await self.synced()
        await rounds()

    async def _appraise(self) -> None:
        await asyncio.sleep(self.config.scheduling.appraise_after)
        await self.synced()
        await keep_appraised(self.state.values)

    def _tell_refused(self, args: ExtenderArgs, result: ExtenderFilterResult) -> None:
        pod = args.pod
        if refusal := self.state.refusals.of(pod.metadata.uid):
            self.metrics.refused(refusal.reasons)
            self._autoscaling.refused(args)
        if self._events.is_news(pod.metadata.uid, events.UNSATISFIED):
            self._events.record(events.unsatisfied(_named(pod), _refusals(result)))

    def _tell(self, target: BindTarget, bound: Bound) -> None:
        """Record what several GPUs are worth together; one GPU is no news."""
        if bound.record.bandwidth is not None:
            pod = events.PodName(target.namespace, target.name, target.uid)
            self._events.record(events.placed(pod, target.node, bound.record))

    def _complaint(self, reflector: Reflector[Node] | Reflector[Pod]) -> str | None:
        if not reflector.synced.is_set():
            return f"not listed yet: {reflector.trouble}"
        if reflector.denied:
            return f"denied: {reflector.trouble}"
        silence = asyncio.get_running_loop().time() - reflector.heard_at
        return f"silent for {silence:.0f} s" if silence > 2 * self.config.watch.silence else None


def _refusals(result: ExtenderFilterResult) -> Counter[str]:
    return Counter([*(result.failed_nodes or {}).values(), *(result.failed_and_unresolvable_nodes or {}).values()])


def _named(pod: Pod) -> events.PodName:
    return events.PodName(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def _cause_of_death(task: asyncio.Task[None]) -> str | None:
    if not task.done():
        return None
    return "cancelled" if task.cancelled() else repr(task.exception())
