"""Answers the kubelet's three questions in time: what to take, whether that will do, and whether the container may start.

The kubelet asks about one pod at a time and does nothing else until it is answered. So a call that hangs (its own List,
the API server, the disk) is waited for only so long. The decision is then made from what is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import structlog

from agent.errors import KubeletUnavailable
from agent.kubelet.listing.pod_lists import PodLists
from agent.limits.share import Share, shares_of
from agent.node.ledger import LedgerReader
from agent.plugin.choice.choose import AllocationRefusal, Ask, Grant
from agent.plugin.choice.forms import DeviceForm, Plans
from agent.plugin.devices.share_devices import brief
from agent.plugin.hold_back import Served, is_as_served, is_by_plan, may_start
from agent.plugin.pods.identify import Identity, Planned, Unknown, identify
from agent.plugin.pods.listed_pods import ListedPod, listed_gpus, plans_of

log = structlog.get_logger()

_LIST_SHARE, _LEDGER_SHARE, _JOURNAL_SHARE = 0.6, 0.7, 0.25
"""Of the deadline; List and ledger are asked at once, the journal is written after."""


class Journal(Protocol):
    """Keeps what was handed out over a restart."""

    def load(self) -> tuple[Served, ...]:
        """Return what was kept last."""
        ...

    async def keep(self, served: tuple[Served, ...], timeout_seconds: float) -> None:
        """Keep this instead, or give up after a while."""
        ...


class AllocationMetrics(Protocol):
    """What is counted."""

    def identified(self, seconds: float) -> None:
        """Count how long it took to find the pod under admission."""
        ...

    def allocated(self, outcome: str) -> None:
        """Count one Allocate: its basis, or `refused`."""
        ...

    def held_back(self, cause: str) -> None:
        """Count a container that had to wait, for its `plan`, for a `process` or for its `limit`."""
        ...


@dataclass(frozen=True, slots=True)
class AllocationRecords:
    """What says who has which GPUs, and who shall."""

    lists: PodLists
    """Who holds them now, by the kubelet."""
    ledger: LedgerReader
    """Whose they shall be, by the extender."""
    journal: Journal
    """Whom we handed them out to."""


class Admission:
    """One node's.

    Args:
        records: Of the node's GPUs.
        metrics: Are told.
        clock: Monotonic seconds.
        deadline_seconds: For each answer but `may_start`'s.
        vacated: Waits until nobody computes on GPUs, but not for ever, and returns what is in the way then.
        limited: Holds a pod to its shares, and returns why it must not start.

    """

    def __init__(
        self,
        records: AllocationRecords,
        metrics: AllocationMetrics,
        clock: Callable[[], float],
        deadline_seconds: float,
        vacated: Callable[[frozenset[str]], Awaitable[str | None]],
        limited: Callable[[Collection[Share]], Awaitable[str | None]] | None = None,
    ) -> None:
        self._records = records
        self._metrics = metrics
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._vacated = vacated
        self._limited = limited
        self._served = records.journal.load()
        self._turn = asyncio.Lock()
        self._preferred: tuple[frozenset[str], Identity, Plans] | None = None

    def kubelet_restarted(self) -> None:
        """Forget what was asked last: the container that it was for is admitted anew."""
        self._preferred = None

    async def prefer(self, ask: Ask, form: DeviceForm) -> Grant | AllocationRefusal:
        """Say which devices the kubelet should take for the next container."""
        async with self._turn:
            began = self._clock()
            pods, plans = await self._facts()
            who = self._identify(pods, plans, ask.size, form)
            self._metrics.identified(self._clock() - began)
            answer = form.choose(ask, pods or (), who, plans)
            self._preferred = (frozenset(answer.gpus), who, plans) if isinstance(answer, Grant) else None
        if isinstance(answer, AllocationRefusal):
            self._metrics.allocated("refused")
            log.warning("refused a pod", pod=_name(who), reason=answer.reason)
        return answer

    async def allocate(self, gpus: frozenset[str], form: DeviceForm) -> Grant | AllocationRefusal:
        """Judge the devices that the kubelet took, and remember who got them."""
        async with self._turn:
            preferred, self._preferred = self._preferred, None
            if preferred and preferred[0] == gpus:
                # Asked a moment ago for the same container: only the pod is looked up again.
                pods, plans = await self._list(), preferred[2]
                who = self._identify(pods, plans, len(gpus), form) if pods is not None else preferred[1]
            else:
                pods, plans = await self._facts()
                who = self._identify(pods, plans, len(gpus), form)
            answer = form.accept(gpus, pods or (), who, plans)
            if isinstance(answer, Grant):
                await self._remember(_served(who, gpus), pods)
        self._metrics.allocated(answer.basis if isinstance(answer, Grant) else "refused")
        if isinstance(answer, AllocationRefusal):
            log.warning("refused a pod", pod=_name(who), reason=answer.reason)
        else:
            log.info("allocated", pod=_name(who), gpus=",".join(brief(answer.gpus)), basis=answer.basis)
        return answer

    async def may_start(self, gpus: frozenset[str], form: DeviceForm) -> str | None:
        """Return why a container with these devices has to wait, or `None`.

        The kubelet waits for this answer with one pod only, up to 30 s: so here is where processes are waited for.
        """
        pods = await self._list()
        cause, reason = "plan", await self._against_plan(gpus, pods, form)
        if reason is None:
            cause, reason = "process", await self._vacated(form.to_be_vacant(gpus, self._in_use(pods)))
        if reason is None and self._limited and form.is_shared:
            cause, reason = "limit", await self._limited(await self._shares(gpus, pods))
        if reason is not None:
            self._metrics.held_back(cause)
            log.warning("a container has to wait", gpus=",".join(brief(gpus)), reason=reason)
        return reason

    async def _shares(self, gpus: frozenset[str], pods: tuple[ListedPod, ...] | None) -> tuple[Share, ...]:
        """Return all shares that the ledger promises to the pod with these devices; none where it knows of none on their GPU.

        Of an ordinary init container that nobody remembers, it is any of the listed pods that are promised as much. What
        the ledger promises to others may stand as well.
        """
        keys = (
            {pod.key for pod in pods or () if pod.gpus & gpus}
            or {item.key for item in self._served if item.name and gpus <= item.gpus}
            or {pod.key for pod in pods or ()}
        )
        reading = await self._records.ledger.read(self._deadline_seconds * _LEDGER_SHARE)
        uids = {plan.uid for key, plan in plans_of(reading.ledger).items() if key in keys and plan.covers(gpus)}
        return tuple(share for share in shares_of(reading.ledger) if share.uid in uids) if reading.ledger else ()

    def _in_use(self, pods: tuple[ListedPod, ...] | None) -> frozenset[str] | None:
        """Return what containers hold, ordinary init containers too, which the kubelet does not list."""
        if pods is None:
            return None
        there = {pod.key for pod in pods}
        return listed_gpus(pods).union(*(item.gpus for item in self._served if item.key in there))

    async def _against_plan(
        self, gpus: frozenset[str], pods: tuple[ListedPod, ...] | None, form: DeviceForm
    ) -> str | None:
        if pods is None:
            is_known = any(gpus <= item.gpus and item.name for item in self._served)
            return None if is_known else "the kubelet does not say whose GPUs these are"
        if is_as_served(gpus, pods, self._served):
            return None
        reading = await self._records.ledger.read(self._deadline_seconds * _LEDGER_SHARE)
        plans = plans_of(reading.ledger)
        reason = may_start(gpus, pods, self._served, plans, form)
        if reason is None and not reading.fresh and not is_by_plan(gpus, self._served, plans):
            # The plan may be in a ledger that could not be read in time, neither then nor now.
            return "its GPUs were handed out without a plan, and the ledger cannot be read"
        return reason

    async def _facts(self) -> tuple[tuple[ListedPod, ...] | None, Plans]:
        """Return the node's pods and their plans."""
        reading = self._records.ledger.read(self._deadline_seconds * _LEDGER_SHARE)
        pods, read = await asyncio.gather(self._list(), reading)
        return pods, plans_of(read.ledger)

    async def _list(self) -> tuple[ListedPod, ...] | None:
        try:
            return await self._records.lists.read(self._deadline_seconds * _LIST_SHARE)
        except KubeletUnavailable as error:
            log.warning("the kubelet could not be asked", reason=str(error))
            return None

    def _identify(self, pods: tuple[ListedPod, ...] | None, all_plans: Plans, size: int, form: DeviceForm) -> Identity:
        plans = {key: plan for key, plan in all_plans.items() if form.may_ask(plan)}
        if pods is None:
            holders = {pod.key for pod in self._records.lists.pods if pod.gpus}
            waiting = tuple(plan for key, plan in plans.items() if key not in holders)
            return Unknown("the kubelet does not say which pods there are", waiting)
        return identify(pods, self._records.lists.arrivals.newest, plans, size)

    async def _remember(self, served: Served, pods: tuple[ListedPod, ...] | None) -> None:
        listed = {pod.key for pod in pods} if pods is not None else None
        kept = (item for item in self._served if listed is None or item.key in listed)
        self._served = (*(item for item in kept if not item.gpus & served.gpus or item.key == served.key), served)
        await self._records.journal.keep(self._served, self._deadline_seconds * _JOURNAL_SHARE)


def _served(who: Identity, gpus: frozenset[str]) -> Served:
    if isinstance(who, Planned):
        return Served(who.plan.namespace, who.plan.name, who.plan.uid, gpus)
    return Served("", "", "", gpus)


def _name(who: Identity) -> str:
    return "/".join(who.plan.key) if isinstance(who, Planned) else "?"
