"""Wakes kube-scheduler for pods that were refused, and would not be refused any more.

It tries a pod again when an object changes that it watches, else after five minutes. Some nodes open without such a
change. A DRA driver names a device in a ResourceSlice, `relax-after` is over, or links have been stable for long enough.
So we check pods that have not been asked about for a while, on the nodes that refused them. What lets them on other nodes
is a change that kube-scheduler sees. Where a pod fits, its node is written to.

The write asks the node's agent for a look, and so there may be two. Each wakes all pods that an extender has refused (Kubernetes
1.30 and 1.31: those that the node would admit). So there is at most one in `QUIET_SECONDS`. For a pod that does not come
in spite of it, each pause is longer than the last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, Self

from extender.binding.driver import Driver
from extender.binding.release import ask_for_look
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import owner_of
from extender.cluster.state import ClusterState
from extender.core.feature import Core, Feature
from extender.kit.backoff import Backoff, Pauses
from extender.kit.clock import Clock
from extender.kit.fair_table import FairTable
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Round
from extender.kit.turns import in_turns
from extender.verbs.filter_prioritize import is_refusal
from extender.verbs.names import Names, Written
from extender.verbs.pod_context import PodContext
from extender.verbs.preparing import ranked
from extender.verbs.wire import ExtenderArgs, ExtenderFilterResult
from topology.errors import RequestError

EVERY_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 10.0
"""For which a pod has not been asked about: kube-scheduler's longest pause, unless it is configured, is over by then."""
PAUSE_SECONDS: Final = 20.0
"""After a write that did not bring a pod to a node, before the next one for it."""
LONGEST_PAUSE_SECONDS: Final = 300.0
FORGOTTEN_SECONDS: Final = 600.0
"""After which kube-scheduler, which tries each pod again by itself, has asked somebody else."""
WAITING: Final = 32
"""Owners of pods, shared between namespaces: each keeps the names of the nodes that refused the last of them."""
AT_ONCE: Final = 8
"""Pods that a round looks at, of each namespace in turn; the next one goes on from there."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OwnerRefusal:
    """The last refusal of a pod, which stands for all of its owner's."""

    uid: str
    name: str
    """Namespace and name."""
    by: Collection[str]
    """All nodes that kube-scheduler's own filters let through."""
    at: float
    """Monotonic, in seconds."""


class Waking(Feature):
    """The rounds of one extender.

    Args:
        state: The cluster.
        driver: Does what is to be written.
        clock: Tells the time.
        closed: Says why no verb is answered now: then nobody is woken, either.
        every_seconds: Pause between two rounds.

    """

    name = "waking"

    def __init__(
        self,
        state: ClusterState,
        driver: Driver,
        clock: Clock,
        closed: Callable[[], str | None],
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._state = state
        self._driver = driver
        self._clock = clock
        self._closed = closed
        self._every_seconds = every_seconds
        self._refused = FairTable[str, OwnerRefusal](WAITING)
        """By owner, or by UID where there is none; those first that have not been looked at for longest."""
        self._attempts = Backoff(Pauses(PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
        """By the same."""
        self._not_before = 0.0
        """When the next write may be; monotonic seconds."""

    @classmethod
    def of(cls, core: Core) -> Self:
        """Return the feature; it has no switch."""
        return cls(core.state, core.driver, core.clock, core.closed, core.config.reconcile.interval)

    def rounds(self) -> Iterable[Round]:
        """Return the one that looks again at refused pods."""
        return (Round(name=self.name, work=self.round, every_seconds=self._every_seconds),)

    def after_filter(self, args: ExtenderArgs, result: ExtenderFilterResult) -> None:
        """Remember a pod that was refused, and forget one that was offered a node."""
        metadata = args.pod.metadata
        uid, key = metadata.uid, owner_of(args.pod) or metadata.uid
        before = self._refused.get(key)
        if is_refusal(result) and self._state.memory.refusals.of(uid):
            name = f"{metadata.namespace}/{metadata.name}"
            refused = OwnerRefusal(uid, name, _unread(args.names), self._clock().monotonic)
            self._refused.put(key, metadata.namespace, refused)
        elif before and before.uid == uid:
            self._refused.pop(key)
            self._attempts.forget(key)

    async def round(self) -> None:
        """Look at the next pods, and wake for the first one that fits."""
        now = self._clock().monotonic
        if now < self._not_before or self._closed():
            return
        self._attempts.keep_only(self._refused)
        for key in self._refused.in_turn(AT_ONCE):
            refused = self._refused.get(key)
            if refused is None:
                continue
            if now - refused.at > FORGOTTEN_SECONDS or self._state.memory.refusals.of(refused.uid) is None:
                self._refused.pop(key)
                continue
            self._refused.to_back(key)
            is_due = now - refused.at > QUIET_SECONDS and self._attempts.may_begin(key, now)
            view = await self._place_of(refused) if is_due else None
            if view and self._refused.get(key) is refused:  # nobody has asked meanwhile
                await self._wake(key, refused, view)
                return

    async def _place_of(self, refused: OwnerRefusal) -> NodeView | None:
        """Return the node of those that refused a pod which filter would put first now."""
        pod = self._state.pods.get(refused.uid)
        if pod is None or not pod.is_alive:
            return None
        try:
            context = PodContext.read(self._state, pod.pod, self._clock())
        except RequestError:
            return None
        best = (await in_turns(ranked(self._state, context, Names(_unread(refused.by))))).best
        return self._state.views[best] if best else None

    async def _wake(self, key: str, refused: OwnerRefusal, view: NodeView) -> None:
        now = self._clock().monotonic
        self._not_before = now + QUIET_SECONDS
        if await self._driver.drive(ask_for_look(self._state, view.node), self._driver.deadline()):
            self._attempts.failed(key, now)  # forgotten when the pod is offered a node
            log.info("woke kube-scheduler for a pod that fits", pod=refused.name, uid=refused.uid, node=view.name)


def _unread(names: Collection[str]) -> Collection[str]:
    """Return names to keep: the text of thousands, and not what was read of it."""
    return names.unread() if isinstance(names, Written) else names
