"""Decides what a reader of the view sees; `extender.web.view_port` serves the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final, Self

from extender.core.feature import Core, Feature
from extender.features.view.agent_samples import AgentSamples, Samples
from extender.features.view.pod_events import PodEvents
from extender.features.view.reviews import Reviews, ReviewsUnavailable, TooManyReviews, Viewer
from extender.features.view.settings import ViewSettings
from extender.inspect.pod_story import EventLine
from extender.inspect.sight import EVERYTHING, Sight
from extender.telemetry.metrics import Declaration, SeriesKind

REVIEWS: Final = Declaration(
    "gputopo_view_reviews",
    "Reviews for the view (`token`, `access`): `yes`, `no`, `throttled`, `failed`.",
    SeriesKind.COUNTER,
    labels=("kind", "answer"),
    values=tuple(product(("token", "access"), ("yes", "no", "throttled", "failed"))),
)


@dataclass(frozen=True, slots=True)
class ViewAccess:
    """What one reader may see."""

    sight: Sight
    viewer: Viewer | None
    """`None`: nobody is asked who it is."""


@dataclass(slots=True)
class View(Feature):
    """The view of one extender."""

    name = "view"
    section = ViewSettings
    declarations = (REVIEWS,)

    settings: ViewSettings
    reviews: Reviews
    events: PodEvents
    samples: AgentSamples | None = None
    """`None` where pages of nodes show none."""

    @classmethod
    def of(cls, core: Core) -> Self | None:
        """Return the feature, `None` where it is not enabled."""
        settings, send, clock = core.config.section(ViewSettings), core.watching.api.send, core.clock
        if not settings.enabled:
            return None
        reviews = Reviews(send, lambda: clock().monotonic, settings.audiences, partial(core.metrics.count, REVIEWS))
        samples = AgentSamples(send, lambda: clock().monotonic, core.state.agents.pod_on) if settings.samples else None
        return cls(settings, reviews, PodEvents(send, lambda: clock().monotonic), samples)

    @property
    def asks_for_tokens(self) -> bool:
        """Whether readers have to say who they are."""
        return self.settings.authorization == "kubernetes"

    def reader_of(self, token: str) -> str | None:
        """Return a key of the user whose token this was when it was last asked about; `None`: it was nobody's."""
        return self.reviews.user_of(token)

    async def access(self, token: str, namespaces: Iterable[str], first: str) -> ViewAccess:
        """Return what the reader with this token sees of these namespaces, and of that which the page is about first.

        Raises `Unauthenticated`, `TooManyReviews` and `ReviewsUnavailable`.
        """
        if not self.asks_for_tokens:
            return ViewAccess(EVERYTHING, None)
        viewer = await self.reviews.viewer(token)
        return ViewAccess(await self.reviews.sight(viewer, namespaces, first), viewer)

    async def samples_of(self, node: str) -> Samples | None:
        """Return what the GPUs of a node do, by UUID; `None` where nobody can tell now, or it is not shown."""
        return await self.samples.of(node) if self.samples else None

    async def events_of(self, viewer: Viewer | None, namespace: str, uid: str) -> Sequence[EventLine] | None:
        """Return the events of a pod, the newest first; `None` where the reader may not list them, or nobody can now."""
        try:
            if viewer is not None and not await self.reviews.may_list(viewer, namespace, "events"):
                return None
        except (TooManyReviews, ReviewsUnavailable):
            return None
        return await self.events.of(namespace, uid)
