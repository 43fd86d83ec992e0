"""What a feature is: a part of the extender that can be left out, and that the core knows by this class alone.

The core calls the observers synchronously, in any order, and they do no I/O. An observer that raises is logged and counted, and
the answer of the verb stays as it is. A feature changes decisions only through mechanisms of the core's state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Self

from extender.binding.driver import Driver
from extender.binding.outcome import BindTarget, Bound
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.config.document import ExtenderConfiguration
from extender.core.openings import Openings
from extender.core.queue_outlook import QueueOutlook
from extender.inspect.front_tables import FrontTable
from extender.inspect.history import History
from extender.inspect.inspection import Answer
from extender.inspect.notes import PodNote
from extender.kit.clock import Clock, Instant
from extender.kit.rounds import Round
from extender.kit.settings import Section
from extender.kubernetes.events import EventRecorder
from extender.kubernetes.rest import Request
from extender.kubernetes.watching import Watching
from extender.telemetry.metrics import Declaration, Figures, Metrics
from extender.verbs.wire import ExtenderArgs, ExtenderFilterResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What the core gives to a feature."""

    config: ExtenderConfiguration
    state: ClusterState
    clock: Clock
    driver: Driver
    """Carries out steps of the protocol."""
    lock_of: Callable[[str], asyncio.Lock]
    """Returns the lock of a node, which binds to it take: work that writes its ledger waits for them there."""
    watching: Watching
    """Watches further kinds, and sends single requests."""
    events: EventRecorder
    metrics: Metrics
    history: History
    """What pages show of the past; a feature writes it."""
    closed: Callable[[], str | None]
    """Returns why no verb is answered now."""
    openings: Openings = field(default_factory=Openings)
    """What features do before the queue opens a gate, and whether it does so in this process."""
    queue: QueueOutlook = field(default_factory=QueueOutlook)
    """What the queue has no room for."""


@dataclass(frozen=True, slots=True)
class Removal:
    """How to remove what a feature has created."""

    kind: str
    """Of the object, as `kubectl gputopo cleanup` shows it."""
    request: Request


class Feature:
    """One feature of one extender; by default it does nothing."""

    name: ClassVar[str]
    """Its section of the configuration has the same name, with `_` for `-`."""
    section: ClassVar[type[Section] | None] = None
    """Its settings, if it has any."""
    declarations: ClassVar[tuple[Declaration, ...]] = ()
    """Its metrics."""
    paces_scheduling: ClassVar[bool] = False
    """Whether filter waits while many binds are under way, so that kube-scheduler gets no further ahead of them."""
    report_kind: ClassVar[type[Answer] | None] = None
    """Kind of the answer at `/v1/inspect/NAME`; `None`: the feature has no report."""

    @classmethod
    def of(cls, core: Core) -> Self | None:
        """Return the feature as the configuration wants it, `None` where it is switched off."""
        raise NotImplementedError

    @classmethod
    def removal(cls, pod: Pod) -> Removal | None:
        """Return how to remove a pod that the feature has created, `None` for any other pod; only its metadata are given."""
        return None

    def rounds(self) -> Iterable[Round]:
        """Return the work that it does again and again."""
        return ()

    def figures(self) -> Figures:
        """Return its gauges as they are now."""
        return {}

    def report(self) -> Answer:
        """Return what it shows of itself; a `report_kind`."""
        raise NotImplementedError

    @classmethod
    def report_without(cls, state: ClusterState, now: Instant) -> Answer:
        """Return the same where the feature is switched off."""
        raise NotImplementedError

    def note(self, pod: GpuPod) -> PodNote | None:
        """Return what there is to say of a pod, `None` if nothing."""

    def front_table(self) -> FrontTable | None:
        """Return what it shows on the front page, `None` if nothing."""

    @classmethod
    def note_without(cls, state: ClusterState, pod: GpuPod, now: Instant, *, is_off: bool) -> PodNote | None:
        """Return the same where the feature is switched off or, if not `is_off`, where no extender was asked."""

    def before_filter(self, args: ExtenderArgs) -> None:
        """Note that kube-scheduler asks about a pod."""

    def after_filter(self, args: ExtenderArgs, result: ExtenderFilterResult) -> None:
        """Note the answer to filter."""

    def after_bind(self, target: BindTarget, bound: Bound) -> None:
        """Note that a pod has been bound."""
