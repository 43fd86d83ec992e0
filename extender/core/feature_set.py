"""The features of one extender: those that are switched on, and what the others say instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from extender.cluster.objects.gpu_pods import GpuPod
from extender.core.feature import Core, Feature
from extender.inspect.front_tables import FrontTable
from extender.inspect.inspection import Answer
from extender.inspect.notes import PodNote
from extender.inspect.rows import row
from extender.kit.plain_structlog import structlog
from extender.telemetry.core import FAILED_ROUNDS

AnyFeature = TypeVar("AnyFeature", bound=Feature)

log = structlog.get_logger(__name__)


class FeatureSet:
    """All kinds of features, and those of them that the configuration switches on."""

    def __init__(self, kinds: Sequence[type[Feature]], core: Core) -> None:
        self._kinds = tuple(kinds)
        self._core = core
        self._on = tuple(feature for kind in kinds if (feature := kind.of(core)) is not None)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self._on)

    def get(self, kind: type[AnyFeature]) -> AnyFeature | None:
        """Return the feature of this kind, if it is switched on."""
        return next((feature for feature in self._on if isinstance(feature, kind)), None)

    def report(self, kind: type[Feature]) -> Answer:
        """Return what a feature with a `report_kind` shows of itself, also where it is switched off."""
        feature = self.get(kind)
        return feature.report() if feature else kind.report_without(self._core.state, self._core.clock())

    def notes(self, namespace: str, name: str) -> tuple[PodNote, ...]:
        """Return what features say of a pod."""
        pod = self._core.state.pods.find(namespace, name)
        if pod is None:
            return ()
        notes = (row(kind.name, partial(self._note, kind, pod), None) for kind in self._kinds)
        return tuple(note for note in notes if note)

    def front_tables(self) -> tuple[FrontTable, ...]:
        """Return what features show on the front page."""
        tables = (row(feature.name, feature.front_table, None) for feature in self._on)
        return tuple(table for table in tables if table)

    def notify(self, observe: Callable[[Feature], None]) -> None:
        """Call an observer of each; the answer of a verb does not depend on one that raises."""
        for feature in self._on:
            try:
                observe(feature)
            except Exception:
                log.exception("a feature failed", feature=feature.name)
                self._core.metrics.count(FAILED_ROUNDS, feature.name)

    def _note(self, kind: type[Feature], pod: GpuPod) -> PodNote | None:
        feature = self.get(kind)
        if feature:
            return feature.note(pod)
        return kind.note_without(self._core.state, pod, self._core.clock(), is_off=True)
