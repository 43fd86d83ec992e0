"""Binds in an order: one at a time for a pod, and one at a time for a node up to its Binding.

Safety does not depend on that. Binds side by side would lose time on conflicts, and two binds of one pod would not know of each
other's claims.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from extender.binding.bind import bind
from extender.binding.driver import Driver
from extender.binding.intents import BindPod, Done, Intent, Reply
from extender.binding.outcome import BindTarget, Failure, NotBound, Outcome
from extender.cluster.state import ClusterState
from extender.kit.clock import Clock
from extender.kit.keyed_locks import KeyedLocks

WAIT_RATIO: Final = 2 / 3
"""Of a bind's time that it may wait for its turn; one that begins too late to end would only leave a claim in doubt."""


class Binds:
    """Binds of one extender."""

    def __init__(self, state: ClusterState, clock: Clock, driver: Driver) -> None:
        self._state = state
        self._clock = clock
        self._driver = driver
        self.of_nodes = KeyedLocks()
        self._of_pods = KeyedLocks()

    async def bind(self, target: BindTarget) -> Outcome:
        """Bind a pod to a node, with exact GPUs, by the deadline or not at all."""
        deadline = self._driver.deadline()
        pod, node = self._of_pods.of(target.uid), self.of_nodes.of(target.node)
        if not await pod.take(self._driver.work_timeout_seconds * WAIT_RATIO):
            return NotBound(Failure.NO_ANSWER, "another bind of the pod took all the time")

        async def execute(intent: Intent, timeout_seconds: float) -> Reply:
            if not isinstance(intent, BindPod):
                return await self._driver.execute(intent, timeout_seconds)
            node.leave()  # the ledger says who has what: the next bind may begin
            reply = await self._driver.execute(intent, timeout_seconds)
            if not isinstance(reply, Done):  # what comes now may write the ledger once more
                await node.take(WAIT_RATIO * (deadline - self._clock().monotonic))
            return reply

        try:
            if not await node.take(WAIT_RATIO * (deadline - self._clock().monotonic)):
                return NotBound(Failure.NO_ANSWER, "other binds to the node took all the time")
            steps = bind(self._state, target, self._clock, deadline=deadline)
            return await replace(self._driver, execute=execute).drive(steps, deadline)
        finally:
            node.leave()
            pod.leave()
