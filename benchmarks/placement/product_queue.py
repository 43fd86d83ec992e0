"""The product where jobs are planned together: one queue planned ahead, or one that every job waits in until it starts whole."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from benchmarks.placement.cluster import Cluster
from benchmarks.placement.jobs import Job
from benchmarks.placement.policy import Placed
from benchmarks.placement.product import uid_of
from benchmarks.placement.product_with_planner import GputopoWithPlanner
from extender.features.queue.reservation_turns import ReservationTurns
from extender.features.queue.settings import QueueSettings
from extender.features.steering.feature import BATCH
from extender.planning.plan import plan_queue
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.planner import PlanContext, QueuePlan, plan_units
from extender.planning.reservations import Running
from extender.planning.units import Assignment, PendingPod, Unit
from topology.effort import finish
from topology.request.domains import GroupRequest
from topology.value.score import Weights

STATED: Final = 1.5
"""Owners state so many times a job's best run time: links slow it down, and people overestimate."""


class GputopoAsOne(GputopoWithPlanner):
    """The extender with `steerQueues`, before a scheduler that follows every nomination.

    Jobs of several pods are groups, which are not planned ahead. What the plan does not look at may refuse a job: it goes
    the plain way then, as a nomination that does not come true.
    """

    def __init__(self, cluster: Cluster, weights: Weights = Weights(), *, required: bool = False) -> None:  # noqa: B008
        super().__init__(cluster, weights, required=required)
        self._pending_pods = dict[str, PendingPod]()
        """UID → what the planner reads of a job that has been planned and has not ended."""

    def place_queue(self, jobs: Sequence[Job], now_s: float) -> Iterator[tuple[Job, Placed]]:
        """Plan the next jobs of the queue, again and again until its end."""
        alone = [job for job in jobs if len(job.pods) == 1 and job.gpus]
        in_vain = set[Hashable]()  # room only shrinks, so more pods of such a kind find none, either
        for first in range(0, len(alone), BATCH):
            batch = alone[first : first + BATCH]
            for job in batch:
                if uid_of(job, 0) not in self._pending_pods:
                    self._meet(job, running=False)
            self._appraise()
            wanted = [pod for pod in self.pending(batch) if pod.kind not in in_vain]
            plan = plan_queue(self, wanted, {})
            assigned = {assignment.pod.metadata.uid for assignment in plan}
            in_vain.update(pod.kind for pod in wanted if pod.pod.metadata.uid not in assigned)
            for assignment in plan:
                job, size = self._planned[assignment.pod.metadata.uid]
                if self._by_name[assignment.node].fits(size):
                    self._meet(job, running=True)
                    yield job, (self.allotment(assignment),)

    def ended(self, job: Job) -> None:
        """Take note that a job is gone."""
        super().ended(job)
        self._pending_pods.pop(uid_of(job, 0), None)

    def _pending_of(self, uid: str) -> PendingPod:
        if uid not in self._pending_pods:
            self._pending_pods[uid] = super()._pending_of(uid)
        return self._pending_pods[uid]


class GputopoQueue(GputopoWithPlanner):
    """The extender's queue: all jobs of one namespace, oldest first, gangs whole, and GPUs kept for the first of them.

    Where no job waits in this workload, there is no queue, and it does what the extender does without one.
    """

    def __init__(
        self,
        cluster: Cluster,
        weights: Weights = Weights(),  # noqa: B008 - a frozen value
        *,
        required: bool = False,
        expected: bool = False,
    ) -> None:
        """Start with an empty cluster; `expected`: each job states its expected duration, see `STATED`."""
        super().__init__(cluster, weights, required=required)
        self._is_expected = expected
        self._units = dict[int, Unit]()
        """Number → a job that has been planned and has not ended."""
        self._running = dict[int, tuple[float | None, tuple[Assignment, ...]]]()
        """Number → when a job is expected to end, and where it runs."""
        self._turns = ReservationTurns(QueueSettings().reservation)
        self._is_due = True
        """Whether all have to be planned again: a job has ended since, or a gang has come that may keep GPUs."""

    def place(self, job: Job) -> Placed | None:
        """Place a job that is not in the queue; the queue alone opens the gates of the others."""
        return None if job.number in self._units else super().place(job)

    def place_queue(self, jobs: Sequence[Job], now_s: float) -> Iterator[tuple[Job, Placed]]:
        """Plan all jobs where that is due, and else those that have just come, on what the last plan for all has left."""
        waiting = {str(job.number): job for job in jobs if job.gpus}
        newcomers = [job for job in waiting.values() if job.number not in self._units]
        for job in newcomers:
            self._meet(job, running=False)
            self._units[job.number] = self._unit_of(job)
        self._appraise()
        units = [self._units[job.number] for job in (waiting.values() if self._is_due else newcomers)]
        plan = self._plan_all(units, now_s) if self._is_due else self._plan_newcomers(units, now_s)
        for start in plan.starts:
            job, seconds = waiting[start.unit.key], start.unit.expected_seconds
            self._running[job.number] = None if seconds is None else now_s + seconds, start.assignments
            self._turns.started(start.unit)
            self._meet(job, running=True)
            yield job, tuple(map(self.allotment, start.assignments))

    def _plan_all(self, units: Sequence[Unit], now_s: float) -> QueuePlan:
        self._is_due = False
        running = [
            Running(place.node, place.held, None if end_s is None else max(end_s, now_s))
            for end_s, places in self._running.values()
            for place in places
        ]
        context = PlanContext(now_s, lambda _: self._locations, lambda: running, self._turns.at(now_s, units))
        plan = finish(plan_units(PlannedNodes(self, {}), units, context))
        self._turns.keep(plan.reservation, now_s)
        return plan

    def _plan_newcomers(self, units: Sequence[Unit], now_s: float) -> QueuePlan:
        kept = self._turns.reservation
        context = PlanContext(now_s, lambda _: self._locations, may_reserve=lambda _: False, kept=kept)
        plan = finish(plan_units(PlannedNodes(self, {}), units, context))
        self._is_due = any(unit.is_gang and unit.key in plan.waits for unit in units)
        return plan

    def ended(self, job: Job) -> None:
        """Take note that a job is gone."""
        super().ended(job)
        self._is_due = True
        if self._units.pop(job.number, None):
            del self._running[job.number]
            for number in range(len(job.pods)):
                del self._planned[uid_of(job, number)]

    def _unit_of(self, job: Job) -> Unit:
        uids = [uid_of(job, number) for number in range(len(job.pods))]
        self._planned.update(zip(uids, ((job, size) for size in job.pods), strict=True))
        members = tuple(self._pending_of(uid) for uid, size in zip(uids, job.pods, strict=True) if size.gpus)
        group = GroupRequest("job", len(members)) if len(members) > 1 else None
        seconds = STATED * job.service_s if self._is_expected else None
        return Unit(str(job.number), "default", 0, job.arrival_s, members, group=group, expected_seconds=seconds)
