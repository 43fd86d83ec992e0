"""The rounds by which a queue is planned ahead: short ones, as long as kube-scheduler asks this extender and a queue stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import product
from statistics import median_low
from typing import Final, Self

from extender.binding.driver import Driver
from extender.binding.intents import Step
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.core.feature import Core, Feature
from extender.features.steering.nominations import Nominations
from extender.features.steering.settings import SteeringSettings
from extender.kit.clock import Clock, Instant
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Round
from extender.kit.turns import in_turns
from extender.planning.plan import plan_queue
from extender.planning.queue import NodesOfCluster, next_wanted, on_their_way
from extender.planning.units import Assignment, PendingPod
from extender.telemetry.metrics import Declaration, Metrics, SeriesKind
from extender.verbs.preparing import prepare_request
from extender.verbs.wire import ExtenderArgs
from topology.effort import Allowance, Search

NOMINATIONS: Final = Declaration(
    "gputopo_nominations",
    "Nominations of nodes for waiting pods, by outcome.",
    SeriesKind.COUNTER,
    labels=("outcome",),
    values=tuple(product(("made", "failed", "served", "elsewhere", "lost", "withdrawn"))),
)
AT_ONCE: Final = 16
"""Writes; the extender has 32 connections, and binds go on meanwhile. A bind is two writes, so nominations keep up."""
ROWS: Final = 2
"""Batches under way: while the last writes of one are answered, those of the next go out."""
BATCH: Final = 32
"""Pods that are planned in one go: some milliseconds, in which no call is answered."""
ROUND_SECONDS: Final = 0.05
BEHIND_SECONDS: Final = 2.0
"""Where half of the nominated pods have not been asked about after this long, they wait for something else than a nomination.
One alone may have its own reason. Those that were asked about do not count: however slow binds are, kube-scheduler goes on."""
AT_WORK_SECONDS: Final = 1.0
"""For which a kube-scheduler that asked counts as one that is about to take the next pods from the queue."""
NO_PLACE_SECONDS: Final = 5.0
"""For which a pod is left to kube-scheduler that nothing is free for: others behind it are looked at meanwhile."""
LIVELY_SECONDS: Final = 10.0
"""For which an extender that was asked counts as one that is: others, that stand by, do not plan."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Steering(Feature):
    """The rounds of one extender."""

    name = "steering"
    section = SteeringSettings
    declarations = (NOMINATIONS,)
    paces_scheduling = True

    state: ClusterState
    driver: Driver
    clock: Clock
    metrics: Metrics
    settings: SteeringSettings
    scheduler_names: Collection[str]
    """Of the pods that wait for us."""
    nominations: Nominations = field(init=False)
    _asked_at: float = -LIVELY_SECONDS
    _looked_at: int = 0
    """Nodes, by kube-scheduler for the last pod that it did not look at the nominated one for."""
    _left_until: dict[str, float] = field(default_factory=dict)
    """UID → until when a pod is left to kube-scheduler."""
    _writing: int = 0
    """Nominations that are planned, and not written yet."""
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def __post_init__(self) -> None:
        """Begin with none."""
        self.nominations = Nominations(self.state, self.settings.life)

    @classmethod
    def of(cls, core: Core) -> Self | None:
        """Return the feature, `None` where it is not enabled."""
        settings = core.config.section(SteeringSettings)
        if not settings.enabled:
            return None
        names = core.config.scheduling.scheduler_names
        return cls(core.state, core.driver, core.clock, core.metrics, settings, names)

    def rounds(self) -> Iterable[Round]:
        """Return the one that plans and takes back, and further ones that only plan."""
        yield Round(name=self.name, work=self.round, every_seconds=ROUND_SECONDS)
        for number in range(1, ROWS):
            yield Round(name=f"{self.name}-{number}", work=self._go_on, every_seconds=ROUND_SECONDS)

    def before_filter(self, args: ExtenderArgs) -> None:
        """Note that kube-scheduler asks about a pod on so many nodes; about one alone after a nomination."""
        self._asked_at = self.clock().monotonic
        self.nominations.asked(args.pod.metadata.uid)
        if len(args.names) > 1:
            self._looked_at = len(args.names)

    async def round(self) -> None:
        """Take back what came to nothing, and nominate the next pods of the queue."""
        await self._take_back()
        await self._go_on()

    async def _take_back(self) -> None:
        now = self.clock().monotonic
        overdue = self.nominations.overdue(now)
        await self._all(self._withdraw(pod, now) for pod in overdue)

    async def _go_on(self) -> None:
        now = self.clock().monotonic
        for outcome in self.nominations.ended(now):  # in each row, or what was in vain just now were planned anew
            self.metrics.count(NOMINATIONS, outcome)
        if self._is_due(now):
            await in_turns(self._prepare())
        if self._is_due(self.clock().monotonic):
            assignments = self._plan()
            self._writing += len(assignments)
            await self._all(map(self._nominate, assignments))

    def _is_due(self, now: float) -> bool:
        """Whether there is a queue, or the rest of one, that takes kube-scheduler long, and room for another batch."""
        ahead, settings = self.nominations.ahead_since(), self.settings
        waiting = self.state.indexes.waiting.length(self.scheduler_names)
        is_queue = bool(ahead) or waiting >= settings.queue
        is_asked = now - self._asked_at < LIVELY_SECONDS
        is_dear = self._looked_at >= settings.nodes
        is_of_use = now >= self.nominations.breaker.paused_until
        is_behind = bool(ahead) and now - median_low(ahead) >= BEHIND_SECONDS
        return (
            is_queue
            and is_asked
            and is_dear
            and is_of_use
            and not is_behind
            and len(ahead) + self._writing + BATCH <= settings.ahead
        )

    def _prepare(self) -> Search[None]:
        """Decide on the nodes for the next pods, in slices: each pod may ask for something else."""
        allowance = Allowance()
        for wanted in self._wanted(self.clock()):
            yield from prepare_request(self.state, wanted.request, wanted.pod.metadata.namespace, allowance)

    def _wanted(self, now: Instant) -> list[PendingPod]:
        self._left_until = {uid: until for uid, until in self._left_until.items() if until > now.monotonic}
        return next_wanted(
            self.state,
            self.scheduler_names,
            now,
            at_most=BATCH,
            ahead=self.nominations.ahead() if now.monotonic - self._asked_at < AT_WORK_SECONDS else None,
            may_begin=lambda pod: self._may_begin(pod, now.monotonic),
        )

    def _plan(self) -> list[Assignment]:
        """Plan the next pods, and hold what they are to get."""
        now = self.clock()
        wanted = self._wanted(now)
        if not wanted:
            return []
        with self.state.effort.bounded():
            assignments = plan_queue(NodesOfCluster(self.state), wanted, on_their_way(self.state, now))
        for assignment in assignments:
            self.nominations.hold(assignment, now.monotonic)
        planned = {assignment.pod.metadata.uid for assignment in assignments}
        without = {each.pod.metadata.uid for each in wanted} - planned
        self._left_until |= dict.fromkeys(without, now.monotonic + NO_PLACE_SECONDS)
        return assignments

    def _may_begin(self, pod: GpuPod, now: float) -> bool:
        return pod.uid not in self._left_until and self.nominations.may_begin(pod, now)

    async def _nominate(self, assignment: Assignment) -> None:
        try:
            is_made = await self._drive(self.nominations.nominate(assignment, self.clock().monotonic))
        finally:
            self._writing -= 1
        self.metrics.count(NOMINATIONS, "made" if is_made else "failed")

    async def _withdraw(self, pod: GpuPod, now: float) -> None:
        if await self._drive(self.nominations.withdraw(pod, now)):
            self.metrics.count(NOMINATIONS, "withdrawn")
            node = pod.pod.status.nominated_node_name
            log.info("took a nomination back", pod="/".join(pod.key), uid=pod.uid, node=node)

    async def _drive(self, steps: Step[bool]) -> bool:
        async with self._slots:
            return await self.driver.drive(steps, self.driver.deadline())

    @staticmethod
    async def _all(work: Iterable[Awaitable[None]]) -> None:
        await asyncio.gather(*work)
