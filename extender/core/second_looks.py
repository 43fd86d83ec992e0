"""Filter that looks again before it refuses: after what is known a moment later, and after searches that are under way.

kube-scheduler asks again only when something happens in the cluster. It may have heard of a change before us, even of our own
write of a ledger, and a search that ends is no change. Other calls are served meanwhile. A PodGroup that was refused before is
answered at once: kube-scheduler tries it again with every change, and waits for each answer.
"""

from __future__ import annotations

import asyncio
from typing import Final

from extender.cluster.candidates.gangs import gang_of
from extender.cluster.state import ClusterState
from extender.config.scheduling import SchedulingSettings
from extender.kit.clock import Clock
from extender.kit.patience import Patience
from extender.kit.turns import in_turns
from extender.verbs.filter_prioritize import filter_in_slices, is_refusal, is_undecided
from extender.verbs.wire import ExtenderArgs, ExtenderFilterResult

NEWS_SECONDS: Final = 0.05
"""How much later than kube-scheduler we may hear of a change, usually far less."""
SEARCH_SECONDS: Final = 0.05
"""After which a call that waits for searches looks again; most take less."""


class SecondLooks:
    """Filter of one extender."""

    def __init__(self, state: ClusterState, clock: Clock, limits: SchedulingSettings) -> None:
        self._state = state
        self._clock = clock
        self._limits = limits
        self._for_searches = Patience(filled_at=clock().monotonic)
        self._for_news = Patience(filled_at=clock().monotonic)

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """Return which of the nodes may take the pod."""
        is_known = gang_of(args.pod) is not None and self._state.memory.refusals.of(args.pod.metadata.uid) is not None
        result = await self._look(args)
        if is_refusal(result) and not is_known:
            result = await self._after_news(args, result)
        if is_undecided(result):
            result = await self._after_searches(args, result)
        return result

    async def _after_news(self, args: ExtenderArgs, refused: ExtenderFilterResult) -> ExtenderFilterResult:
        now, namespace = self._clock().monotonic, args.pod.metadata.namespace
        if self._for_news.left(namespace, now) < NEWS_SECONDS:
            return refused
        self._for_news.spend(namespace, NEWS_SECONDS)
        await asyncio.sleep(NEWS_SECONDS)
        return await self._look(args)

    async def _after_searches(self, args: ExtenderArgs, result: ExtenderFilterResult) -> ExtenderFilterResult:
        began, namespace = self._clock().monotonic, args.pod.metadata.namespace
        until = began + self._for_searches.left(namespace, began)
        while is_undecided(result) and (now := self._clock().monotonic) < until:
            await asyncio.sleep(min(SEARCH_SECONDS, until - now))
            result = await self._look(args)
        self._for_searches.spend(namespace, self._clock().monotonic - began)
        return result

    async def _look(self, args: ExtenderArgs) -> ExtenderFilterResult:
        limits = self._limits
        return await in_turns(filter_in_slices(self._state, args, self._clock(), limits.candidates, limits.hold))
