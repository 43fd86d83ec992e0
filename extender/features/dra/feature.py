"""Allocates ResourceClaims of our DeviceClass on nodes whose GPUs NVIDIA's DRA driver publishes: the planner's choice, exactly.

The queue plans the pods, and knows nothing of this. Here is what their claims request, and what is written before their gates are
opened. kube-scheduler keeps to an allocation, or takes it back where the pod cannot run there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, product
from typing import Final, Self

from extender.binding.driver import Driver
from extender.cluster.objects.devices import ResourceClaim
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.core.feature import Core, Feature
from extender.core.openings import Openings
from extender.features.dra.allocations import AllocationOutcome, Allocations
from extender.features.dra.caches import ClaimCache, SliceCache, names_of_claims
from extender.features.dra.demands import Demands
from extender.features.dra.guard import DraGuard
from extender.features.dra.preemption import ROUND_SECONDS as PREEMPTION_SECONDS
from extender.features.dra.preemption import Preemptions
from extender.features.dra.preemption_events import PREEMPTIONS, VICTIMS
from extender.features.dra.requests import is_ours, kept
from extender.features.dra.selectors import load_library
from extender.features.dra.settings import DraSettings
from extender.features.dra.taints import DeviceTaints
from extender.inspect.notes import PodNote
from extender.kit.backoff import Backoff, Pauses
from extender.kit.clock import Clock
from extender.kit.fair_table import FairTable
from extender.kit.lasting import Lasting
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Round
from extender.kit.turns import in_short_turns
from extender.telemetry.metrics import Declaration, Figures, Metrics, SeriesKind, read_gauges

ALLOCATIONS: Final = Declaration(
    "gputopo_dra_allocations",
    "Allocations of ResourceClaims, by what became of them.",
    SeriesKind.COUNTER,
    labels=("outcome",),
    values=tuple(product(AllocationOutcome)),
)
GAUGES: Final = read_gauges(
    {
        "dra_guarded": "1 if nothing keeps the extender from allocating ResourceClaims.",
        "dra_tainted_devices": "DeviceTaintRules that keep kube-scheduler from planned devices.",
    }
)
CHECK_SECONDS: Final = 60.0
UNTIL_ALLOWED_SECONDS: Final = 1.0
"""Between two checks of policy and class while nothing is allocated."""
DEADLINE_SECONDS: Final = 1.0
"""Between two looks for allocations that nobody uses."""
MARKED: Final = 50_000
"""Claims that are for a pod, at most; shared fairly between namespaces."""
LOOKED_AT: Final = 256
"""Of these in one round, one namespace after the other."""
LET_GO_AT_ONCE: Final = 32
"""Claims, in one round."""
ALLOWANCE_SECONDS: Final = 1.0
"""Between two allowances of all namespaces for selectors."""
TAINTING_SECONDS: Final = 1.0
"""Between two looks for devices that kube-scheduler need not be kept from any more."""
TAKE_BACK: Final = Pauses(2.0, 60.0)
"""Between two attempts to take back the allocations of one pod."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Dra(Feature):
    """The claims of one extender."""

    name = "dra"
    section = DraSettings
    declarations = (ALLOCATIONS, PREEMPTIONS, VICTIMS, *GAUGES)

    state: ClusterState
    driver: Driver
    clock: Clock
    metrics: Metrics
    guard: DraGuard
    deadline_seconds: float
    openings: Openings
    reserved_classes: Sequence[str]
    demands: Demands = field(init=False)
    allocations: Allocations = field(init=False)
    taints: DeviceTaints | None = None
    preemptions: Preemptions | None = None
    """`None`: no pod ends for another."""
    _unreserved: dict[str, tuple[str, str]] = field(default_factory=dict)
    """UID of each claim of ours with an allocation that is reserved for no pod → namespace and UID of its pod."""
    _marked: FairTable[str, str] = field(default_factory=lambda: FairTable(MARKED))
    """UID of each claim of ours that is for a pod → its namespace; the next to be looked at first.

    Of those from templates, which a controller removes, only the ones that hold nothing.
    """
    _idle_since: dict[str, float] = field(default_factory=dict)
    """UID of each of these that nobody used at the last look → since when, in monotonic seconds."""
    _lasting: Lasting[str] = field(default_factory=Lasting)
    _failed: Backoff = field(default_factory=lambda: Backoff(TAKE_BACK))
    """By UID of a pod."""
    _kept_on: Backoff = field(default_factory=lambda: Backoff(TAKE_BACK))
    """By UID of a claim that could not be let go."""
    _changed: dict[tuple[str, str], None] = field(default_factory=dict)
    """Namespaces and names of claims without a template whose pods are to be read again: any number may name one claim."""
    _outdated: dict[str, None] = field(default_factory=dict)
    """UIDs of pods that are to be read again."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Hear of claims and slices, and say what pods request by them."""
        slices = SliceCache()
        self.demands = Demands(self.state, self.guard, ClaimCache(self._claim_changed, self.reserved_classes), slices)
        count = partial(self.metrics.count, ALLOCATIONS)
        self.allocations = Allocations(self.state, self.demands, self.clock, count, self.taints)
        self.openings.steps.append(self.allocations)
        self.driver.after_fence.append(self.allocations.withdraw)
        claims, claimed = self.state.claims, self.state.claimed
        claims.allocated_here, claims.trimmed = is_ours, partial(kept, reserved=frozenset(self.reserved_classes))
        claims.parts_of = lambda node: slices.inventory(node).parts
        claims.hearers.append(self.demands.claims)
        claims.slices.hearers.append(slices)
        claimed.reader, claimed.fits = self.demands.read, self.demands.fits

    @classmethod
    def of(cls, core: Core) -> Self | None:
        """Return the feature, `None` where it is not enabled."""
        settings = core.config.section(DraSettings)
        if not settings.enabled:
            return None
        load_library()
        guard = DraGuard(core.watching.api.send, core.config.agents.namespace, is_needed=not settings.unguarded)
        feature = cls(
            core.state,
            core.driver,
            core.clock,
            core.metrics,
            guard,
            settings.deadline,
            core.openings,
            settings.reserved_classes,
            DeviceTaints(core.watching.api.send, core.clock, core.openings, guard.class_uid),
        )
        if settings.preemption:
            feature.preemptions = Preemptions(
                core.state,
                feature.demands,
                core.driver,
                core.watching.api.send,
                core.clock,
                core.metrics,
                core.events,
                core.queue,
            )
        return feature

    def rounds(self) -> Iterable[Round]:
        """Return the check of policy and class, the looks for unused allocations and for pods to read again, and preemption."""
        yield Round(name=f"{self.name}-guard", work=self.check, every_seconds=self._pause_seconds, at_once=True)
        yield Round(name=self.name, work=self.take_back_unreserved, every_seconds=DEADLINE_SECONDS)
        yield Round(name=f"{self.name}-marks", work=self.let_go_of_idle, every_seconds=DEADLINE_SECONDS)
        yield Round(name=f"{self.name}-selectors", work=self.renew_allowances, every_seconds=ALLOWANCE_SECONDS)
        yield Round(name=f"{self.name}-pods", work=self.read_again, every_seconds=DEADLINE_SECONDS, wake=self._wake)
        if self.taints:
            work, wake = self.taints.work, self.taints.wake
            yield Round(name=f"{self.name}-taints", work=work, every_seconds=TAINTING_SECONDS, wake=wake)
        if self.preemptions:
            follow, search = self.preemptions.follow, self.preemptions.begin_next
            yield Round(name=f"{self.name}-preemption", work=follow, every_seconds=PREEMPTION_SECONDS)
            yield Round(name=f"{self.name}-preemption-search", work=search, every_seconds=PREEMPTION_SECONDS)

    def figures(self) -> Figures:
        """Return whether claims are allocated, and how many devices are tainted."""
        return {
            "dra_guarded": self.guard.obstacle is None,
            "dra_tainted_devices": self.taints.count if self.taints else 0,
        }

    def note(self, pod: GpuPod) -> PodNote | None:
        """Return for which pods it waits that end for it, or why none does."""
        line = self.preemptions.words_of(pod) if self.preemptions else None
        return PodNote(feature=self.name, line=line) if line else None

    async def check(self) -> None:
        """Try the policy, read the class, and read all pods again if that has changed what they may have."""
        if await self.guard.check():
            log.info("whether ResourceClaims are allocated", obstacle=self.guard.obstacle)
            self._outdated |= dict.fromkeys(self.state.claimed.uids)
            await self.read_again()

    async def read_again(self) -> None:
        """Read the pods again of which claims have changed."""
        await in_short_turns(self._reading_again())

    async def renew_allowances(self) -> None:
        """Let the selectors of all namespaces be evaluated again."""
        self.demands.renew_allowances()

    async def take_back_unreserved(self) -> None:
        """Take back what kube-scheduler has reserved for nobody by the deadline, with the pod's other claims."""
        if not self.openings.are_here():
            self._lasting.forget()
            return
        now = self.clock().monotonic
        lasting = self._lasting.seconds(self._unreserved, now)
        late = {self._unreserved[uid] for uid, seconds in lasting.items() if seconds >= self.deadline_seconds}
        self._failed.keep_only({uid for _, uid in late})
        for namespace, uid in sorted(pod for pod in late if self._failed.may_begin(pod[1], now)):
            if not await self.driver.drive(self.allocations.take_back(namespace, uid), self.driver.deadline()):
                self._failed.failed(uid, self.clock().monotonic)

    async def let_go_of_idle(self) -> None:
        """Let go of claims that are for pods which are gone, or of those without a template which have had no plan for long."""
        if not self.openings.are_here():
            self._idle_since.clear()
            return
        now = self.clock().monotonic
        for claim in [*islice(filter(partial(self._is_due, now=now), self._next_marked()), LET_GO_AT_ONCE)]:
            uid, namespace = claim.metadata.uid, claim.metadata.namespace
            if not await self.driver.drive(self.allocations.let_go(claim), self.driver.deadline()):
                self._kept_on.failed(uid, self.clock().monotonic, namespace)
            elif not claim.is_standalone and self.demands.claims.get(uid):
                self.state.claims.settle(uid)

    def _next_marked(self) -> Iterator[ResourceClaim]:
        """Yield the claims that are to be looked at in this round."""
        for uid in self._marked.in_turn(LOOKED_AT):
            self._marked.to_back(uid)
            if claim := self.demands.claims.get(uid):
                yield claim

    def _is_due(self, claim: ResourceClaim, now: float) -> bool:
        """Whether a claim is to be let go now; takes note of whether anybody uses it."""
        uid = claim.metadata.uid
        if not self._is_idle(claim):
            self._idle_since.pop(uid, None)
            return False
        seconds = now - self._idle_since.setdefault(uid, now)
        is_late = self._is_gone(claim) or seconds >= self.deadline_seconds
        return is_late and self._kept_on.may_begin(uid, now)

    def _is_idle(self, claim: ResourceClaim) -> bool:
        """Whether a claim is reserved for no pod, and no existing pod has it or is to get it.

        For a bound pod nothing is allocated any more. A controller reserves only what the pod names.
        """
        pod = self.state.pods.get(claim.pod)
        if claim.status.reserved_for:
            return False
        if not claim.is_standalone:
            return pod is not None and self._is_gone(claim) and not self.state.claims.is_settled(claim.metadata.uid)
        if pod is None or self._is_gone(claim):
            return True
        if pod.node is not None:
            return not (claim.status.allocation and claim.metadata.name in names_of_claims(pod.pod))
        return not (claim.status.allocation or self.state.claimed_on(claim.pod))

    def _is_gone(self, claim: ResourceClaim) -> bool:
        pod = self.state.pods.get(claim.pod)
        return pod is None or not pod.is_alive or pod.key[0] != claim.metadata.namespace

    def _reading_again(self) -> Iterator[None]:
        self._changed |= dict.fromkeys(self.demands.freed())
        while self._changed:
            namespace, name = next(iter(self._changed))
            del self._changed[namespace, name]
            self._outdated |= dict.fromkeys((yield from self.demands.pods_naming(namespace, name)))
        while self._outdated:
            uid = next(iter(self._outdated))
            del self._outdated[uid]
            self.state.pods.read_again(uid)
            yield

    def _pause_seconds(self) -> float:
        return CHECK_SECONDS if self.guard.obstacle is None else UNTIL_ALLOWED_SECONDS

    def _claim_changed(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        """Take note of a claim's new version, and read its pod again."""
        claim = after or before
        if claim is None:
            return
        if is_ours(claim):
            uid, namespace = claim.metadata.uid, claim.metadata.namespace
            self._unreserved.pop(uid, None)
            if not (before and after and before.pod == after.pod) or after.status.reserved_for:
                self._idle_since.pop(uid, None)
                self._kept_on.forget(uid)
            if after and after.pod and after.status.allocation and not after.status.reserved_for:
                self._unreserved[uid] = namespace, after.pod
            if not (after and after.pod and (after.is_standalone or not after.status.allocation)):
                self._marked.pop(uid)
            elif uid not in self._marked:
                self._marked.put(uid, namespace, namespace)
            if before and after and before.status.allocation and not after.status.allocation:
                self._deallocated(before)
        if not claim.is_standalone:
            self.state.pods.read_again(claim.pod)
            return
        self._changed[claim.metadata.namespace, claim.metadata.name] = None
        self._wake.set()

    def _deallocated(self, before: ResourceClaim) -> None:
        """Let the node step back from a pod that was sent there: kube-scheduler takes back only what a pod cannot use."""
        pod, node = self.state.pods.get(before.pod), before.node
        if pod is None or not pod.is_alive or pod.node is not None or node is None:
            return
        if pod.key[0] != before.metadata.namespace:
            return  # anybody may write down any pod
        if not self.allocations.was_withdrawn(before) and self.openings.are_here():
            self.metrics.count(ALLOCATIONS, AllocationOutcome.UNDONE)
        if not pod.pod.spec.scheduling_gates:
            self.state.memory.setbacks.fail(pod.uid, node, self.clock().monotonic, pod.key[0])
