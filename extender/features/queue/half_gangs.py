"""Notices gangs of which some members are bound and others are not, for longer than a plan takes to be carried out. No I/O."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from extender.cluster.candidates.groups import key_of
from extender.cluster.objects.group_words import GroupKey
from extender.cluster.state import ClusterState
from topology.effort import Search

PATIENCE_SECONDS: Final = 60.0
READ_AT_ONCE: Final = 64
"""Pods, in one step: less than a millisecond."""


@dataclass(slots=True)
class HalfGangs:
    """Half gangs, and since when each is half, in monotonic seconds."""

    state: ClusterState
    _since: dict[GroupKey, float] = field(default_factory=dict)

    def long_since(self, now: float, planned: Container[str]) -> Search[frozenset[GroupKey]]:
        """Return the gangs that have been half for too long.

        Args:
            now: Monotonic seconds.
            planned: UIDs of pods whose plans are being carried out; a gang with one of these is on its way.

        """
        halves = yield from self._halves(planned)
        self._since = {key: self._since.get(key, now) for key in halves}
        return frozenset(key for key, since in self._since.items() if now - since >= PATIENCE_SECONDS)

    def _halves(self, planned: Container[str]) -> Search[set[GroupKey]]:
        """Return the gangs with a member that waits in the queue or was sent to a node, and others that are bound."""
        indexes, halves = self.state.indexes, dict[GroupKey, bool]()
        on_their_way = set[GroupKey]()
        sent = (pod for pod in indexes.waiting.nominated.values() if pod.directed_to)
        for number, pod in enumerate([*chain(indexes.gates.queued.values(), sent)]):
            if number % READ_AT_ONCE == READ_AT_ONCE - 1:
                yield
            group = indexes.groups.request_of(pod.uid)
            if group is None or not group.is_gang:
                continue
            key = key_of(pod.pod, group)
            if pod.uid in planned:
                on_their_way.add(key)
            elif key not in halves:  # once for a gang, however many of its members wait
                halves[key] = any(peer.node for peer in indexes.groups.peers(pod.uid) or ())
        return {key for key, is_half in halves.items() if is_half} - on_their_way
