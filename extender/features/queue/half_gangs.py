"""Notices gangs of which some members are bound and others are not, for longer than a plan takes to be carried out. No I/O."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from extender.cluster.candidates.groups import key_of
from extender.cluster.objects.gpu_pods import GpuPod, read_group
from extender.cluster.state import ClusterState

PATIENCE_SECONDS: Final = 60.0


@dataclass(slots=True)
class HalfGangs:
    """Since when each has been one, in monotonic seconds."""

    state: ClusterState
    _since: dict[str, float] = field(default_factory=dict)

    def long_since(self, now: float, begun: Container[str]) -> dict[str, list[GpuPod]]:
        """Return the gangs that have been half for too long, with their bound members; call it every second or so.

        Args:
            now: Monotonic seconds.
            begun: UIDs of pods whose plans are being carried out; a gang with one of these is on its way.

        """
        halves = self._halves(begun)
        self._since = {key: self._since.get(key, now) for key in halves}
        return {key: bound for key, bound in halves.items() if now - self._since[key] >= PATIENCE_SECONDS}

    def _halves(self, begun: Container[str]) -> dict[str, list[GpuPod]]:
        """Return the gangs with a member that waits in the queue or was sent to a node, and others that are bound."""
        indexes, halves, on_their_way = self.state.indexes, dict[str, list[GpuPod]](), set[str]()
        sent = (pod for pod in indexes.waiting.nominated.values() if pod.directed_to)
        for pod in chain(indexes.gates.queued.values(), sent):
            group = read_group(pod.pod, indexes.groups.words)
            if group is None or not group.is_gang:
                continue
            key = "/".join(key_of(pod.pod, group))
            if pod.uid in begun:
                on_their_way.add(key)
            elif key not in halves and (bound := [peer for peer in indexes.groups.peers(pod.uid) or () if peer.node]):
                halves[key] = bound
        return {key: bound for key, bound in halves.items() if key not in on_their_way}
