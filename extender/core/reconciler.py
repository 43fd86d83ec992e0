"""What an extender does between calls: take back claims, repair ledgers, listen for agents, and tell of GPUs in conflict.

Nothing here is anybody's condition. What is not done in one round is due again in the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from extender.binding.driver import Driver
from extender.binding.recording import Records, record_gpus
from extender.binding.release import ClaimTimers, Task, release
from extender.binding.repair import Repaired, Repairs, repair
from extender.binding.unbound_pods import fence_listed, list_unbound
from extender.cluster.node_view import NodeView
from extender.cluster.state import ClusterState
from extender.kit.plain_structlog import structlog
from extender.kit.turns import in_short_turns, in_turns
from extender.kubernetes import events
from extender.telemetry.core import LEDGER_REPAIRS
from extender.telemetry.metrics import Metrics

AT_ONCE = 8
FENCES_AT_ONCE = 16
"""Half of the connections that there are: binds go on meanwhile."""
FENCING_SECONDS = 30.0
"""For a list of all pods that wait, and a write to each; the next round goes on from there."""
CONFLICT_SECONDS = 2.0
"""Two watches may disagree for a moment."""
OBSTACLE_SECONDS = 60.0
"""Between two words about fences that are refused."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """The rounds of one extender."""

    state: ClusterState
    timers: ClaimTimers
    driver: Driver
    lock_of: Callable[[str], asyncio.Lock]
    """Returns the lock of a node; binds to the node take it, too."""
    events: events.EventRecorder
    metrics: Metrics
    had_a_round: bool = False
    """A round has ended: a node that was without a ledger at the start is so for a reason."""
    _repairs: Repairs = field(default_factory=Repairs)
    _records: Records = field(default_factory=Records)
    _conflicts: dict[tuple[str, str], float] = field(default_factory=dict)
    _told_of_obstacle: float = -OBSTACLE_SECONDS

    async def round(self) -> None:
        """Do what is due."""
        now, slots = self.driver.now(), asyncio.Semaphore(AT_ONCE)
        for name in await in_turns(self.state.listening(now)):
            self._tell_of_silence(name)
        await in_short_turns(self.state.refreshing())
        self._tell_of_conflicts(now)
        self._tell_of_evictions()
        await asyncio.gather(*(self._release(task, slots) for task in self.timers.due(self.state, now)))
        repairs = self._repairs.due(self.state, now)
        await self._fence_unbound(repairs)
        await asyncio.gather(*(self._repair(name, slots) for name in repairs if not self.state.fences.is_needed(name)))
        await asyncio.gather(*(self._record(name, slots) for name in self._records.due(self.state, now)))
        self.had_a_round = True

    async def _release(self, task: Task, slots: asyncio.Semaphore) -> None:
        async with slots, self.lock_of(task.node):
            deadline = self.driver.deadline()
            try:
                dropped = await self.driver.drive(release(self.state, task), deadline)
            except Exception:  # one node's trouble must not keep the GPUs of all others
                log.exception("release failed", node=task.node)
                return
        for claim in dropped:
            log.info("released", node=task.node, gpu=claim.gpu, pod=f"{claim.namespace}/{claim.name}", uid=claim.uid)

    async def _fence_unbound(self, names: list[str]) -> None:
        """Fence whoever has to be fenced before these nodes get their ledgers: once for all of them."""
        deadline = self.driver.now() + FENCING_SECONDS
        try:
            while needy := [name for name in names if self.state.fences.is_needed(name)]:
                if not await self.driver.drive(list_unbound(self.state), deadline):
                    break
                await self._fence_all_listed(deadline)
                if self.state.fences.to_fence:
                    break
        except Exception:
            log.exception("fencing unbound pods failed")
            return
        self._tell_of_obstacles(len(needy))

    async def _fence_all_listed(self, deadline: float) -> None:
        """Fence the pods of the list side by side; each row ends at the first that fails: refusals cost a few calls a round."""
        waiting = iter(self.state.fences.to_fence)

        async def row() -> None:
            for pod in waiting:
                begun = self.driver.now()
                steps = fence_listed(self.state, pod)
                if begun >= deadline or not await self.driver.drive(steps, self.driver.deadline()):
                    return

        await asyncio.gather(*(row() for _ in range(FENCES_AT_ONCE)))

    async def _repair(self, name: str, slots: asyncio.Semaphore) -> None:
        async with slots, self.lock_of(name):
            view = self.state.views.get(name)
            if view is not None and view.is_broken and not view.is_new:
                self._tell_of_broken(view)
            deadline = self.driver.deadline()
            try:
                done = await self.driver.drive(repair(self.state, name), deadline)
            except Exception:
                log.exception("repair failed", node=name)
                return
        self._repairs.take_note(name, done, self.driver.now())
        self._tell_of_repair(name, done)

    async def _record(self, name: str, slots: asyncio.Semaphore) -> None:
        async with slots, self.lock_of(name):
            deadline = self.driver.deadline()
            try:
                await self.driver.drive(record_gpus(self.state, name), deadline)
            except Exception:
                log.exception("recording GPUs failed", node=name)

    def _tell_of_silence(self, name: str) -> None:
        view = self.state.views.get(name)
        if view is not None and view.uuids:
            self.events.record(events.agent_silent(_named_node(view)))
            log.warning("a GPU agent has fallen silent", node=name)

    def _tell_of_obstacles(self, closed_nodes: int) -> None:
        """Tell each pod that could not be fenced, and now and then the log of one of them."""
        obstacles, now = (
            sorted(self.state.fences.take_obstacles(), key=lambda obstacle: obstacle.name),
            self.driver.now(),
        )
        for obstacle in obstacles:
            if obstacle.pod is not None:
                about = events.PodName.of_metadata(obstacle.pod.metadata)
                self.events.record(events.not_fenced(about, obstacle.reason))
        if obstacles and now - self._told_of_obstacle >= OBSTACLE_SECONDS:
            self._told_of_obstacle = now
            pod, reason = obstacles[0].name, obstacles[0].reason
            log.warning("pods cannot be fenced", pod=pod, reason=reason, pods=len(obstacles), closed_nodes=closed_nodes)

    def _tell_of_broken(self, view: NodeView) -> None:
        why = view.payloads.defect or view.shape.closed or ""
        self.events.record(events.ledger_broken(_named_node(view), why))
        log.warning("ledger is broken", node=view.name, why=why, problem=str(view.payloads.ledger.problem or "missing"))

    def _tell_of_repair(self, name: str, done: Repaired) -> None:
        view = self.state.views.get(name)
        if done.rebuilt:
            self.metrics.count(LEDGER_REPAIRS, "rebuilt")
            log.warning("rebuilt a ledger", node=name, pods=len(view.holdings) if view else 0)
            if view is not None:
                self.events.record(events.ledger_rebuilt(_named_node(view), len(view.holdings)))
        for held in done.corrected:
            kind = "adopted" if held.pod.placed is None else "moved" if held.seen else "restored"
            self.metrics.count(LEDGER_REPAIRS, kind)
            pod = "/".join(held.pod.key)
            log.info("corrected a ledger", node=name, kind=kind, pod=pod, uid=held.pod.uid, gpus=sorted(held.gpus))
            if kind != "restored" and view is not None:
                self.events.record(
                    events.corrected(events.PodName.of(held.pod), len(held.gpus), view.name, adopted=kind == "adopted")
                )

    def _tell_of_evictions(self) -> None:
        """Tell the others of a group who of them has to go."""
        for gone in self.state.indexes.evictions.news():
            about = events.PodName.of(gone.pod)
            log.info("a pod of a group has to go", pod="/".join(gone.pod.key), why=gone.why, others=len(gone.others))
            for other in gone.others:
                named = events.PodName.of(other)
                self.events.record(events.member_evicted(named, about, gone.pod.node or "", gone.why))

    def _tell_of_conflicts(self, now: float) -> None:
        """Tell the node, and all pods that have or are promised one GPU, once that has lasted; only the node is told whom."""
        before, self._conflicts = self._conflicts, {}
        for name in sorted(self.state.conditions.in_conflict):
            view = self.state.views[name]
            for gpu in sorted(view.conflicts.keys() | view.disputed):
                since = self._conflicts[name, gpu] = before.get((name, gpu), now)
                if now - since >= CONFLICT_SECONDS:
                    claimants = (self.state.pods.get(claim.uid) for claim, _ in view.claims if claim.gpu == gpu)
                    pods = view.conflicts.get(gpu) or [pod for pod in claimants if pod and pod.node == name]
                    self.events.record(events.conflict(_named_node(view), gpu, view.owners_of(gpu)))
                    for pod in pods:
                        self.events.record(events.shares_gpu(events.PodName.of(pod), gpu, name))


def _named_node(view: NodeView) -> events.NodeName:
    return events.NodeName(view.name, view.node.metadata.uid)
