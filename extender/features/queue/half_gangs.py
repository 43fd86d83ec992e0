"""Notices gangs of which some members are bound and others are not, for longer than a plan takes to be carried out. No I/O.

A gang with as many bound members as it needs is whole, also if more of its pods wait.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from extender.cluster.candidates.groups import key_of
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.group_words import GroupKey
from extender.cluster.state import ClusterState
from extender.kit.lasting import Lasting
from topology.effort import Search

PATIENCE_SECONDS: Final = 60.0
READ_AT_ONCE: Final = 64
"""Pods, in one step: less than a millisecond."""


@dataclass(frozen=True, slots=True)
class HalfGang:
    """A gang that holds GPUs and cannot start."""

    key: GroupKey
    needed: int
    """How many members have to be bound, of those that have not succeeded."""
    bound: tuple[GpuPod, ...]
    unbound: tuple[GpuPod, ...]
    """Those that wait in the queue, or were sent to a node and are not there."""


@dataclass(slots=True)
class HalfGangs:
    """Half gangs, and since when each is half."""

    state: ClusterState
    _lasting: Lasting[GroupKey] = field(default_factory=Lasting)

    def long_since(self, now: float, planned: Container[str]) -> Search[list[HalfGang]]:
        """Return the gangs that have been half for too long, those first that have been for longest.

        Args:
            now: Monotonic seconds.
            planned: UIDs of pods whose plans are being carried out; a gang with one of these is on its way.

        """
        halves = yield from self._halves(planned, now)
        ordered = sorted(self._lasting.seconds(halves, now).items(), key=lambda item: (-item[1], item[0]))
        return [halves[key] for key, seconds in ordered if seconds >= PATIENCE_SECONDS]

    def forget(self) -> None:
        """Forget since when gangs are half: nobody has looked in between."""
        self._lasting.forget()

    def _halves(self, planned: Container[str], now: float) -> Search[dict[GroupKey, HalfGang]]:
        """Return the gangs with a member that waits in the queue or was sent to a node, and others that are bound."""
        indexes, halves = self.state.indexes, dict[GroupKey, HalfGang | None]()
        sent = (pod for pod in indexes.waiting.nominated.values() if pod.directed_to)
        for number, pod in enumerate([*chain(indexes.gates.queued.values(), sent)]):
            if number % READ_AT_ONCE == READ_AT_ONCE - 1:
                yield
            group = indexes.groups.request_of(pod.uid)
            if group is None or not group.is_gang:
                continue
            key = key_of(pod.pod, group)
            if is_on_its_way(self.state, pod, planned, now):
                halves[key] = None
            elif key not in halves:  # once for a gang, however many of its members wait
                halves[key] = self._half(key, pod)
        return {key: gang for key, gang in halves.items() if gang}

    def _half(self, key: GroupKey, pod: GpuPod) -> HalfGang | None:
        groups = self.state.indexes.groups
        members = [pod, *groups.beside(pod.uid)]
        requests = [request for member in members if (request := groups.request_of(member.uid))]
        group = max(requests, key=lambda request: request.size or 0)
        ended = sum(member.pod.status.phase == "Succeeded" for member in members)
        needed = (group.least or group.size or 0) - ended
        bound = tuple(member for member in members if member.is_alive and member.node)
        if not 0 < len(bound) < needed:
            return None
        unbound = tuple(member for member in members if member.has_plan_gate or (_is_sent(member) and member.is_alive))
        return HalfGang(key, needed, bound, unbound)


def is_on_its_way(state: ClusterState, pod: GpuPod, planned: Container[str], now: float) -> bool:
    """Whether a member that waits has a place: by a plan of this replica or of another one, or because others move for it."""
    if pod.uid in planned:
        return True
    return pod.is_gated and bool(state.claimed_on(pod.uid) or state.holds.firm_of(pod.uid, now))


def _is_sent(pod: GpuPod) -> bool:
    return pod.node is None and pod.directed_to is not None
