"""One go of `gputopo-bench measure`: look at the cluster, measure, keep the figures, report."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import table
from benchmarks.measure.cluster import JobNamespace
from benchmarks.measure.job import JobOptions
from benchmarks.measure.run import INTERRUPTED, MeasurementOutcome, Measuring, PollTimes
from benchmarks.measure.store import ConfigMapStore, FigureStore, FileStore, Unusable
from benchmarks.measure.survey import Survey, selected, survey
from extender.cluster.state import ClusterState
from extender.kubectl.reading import read_state
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Unavailable

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
"""As a shell says it."""
EXTENDERS_NAMESPACE = "gputopo-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementLimits:
    """How much is measured."""

    labels: Mapping[str, str | None]
    """Of the nodes that may be used."""
    max_jobs: int
    max_sets: int
    again: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLocation:
    """Where figures are kept."""

    file: Path | None = None
    config_map: str | None = None
    """`[NAMESPACE/]NAME`."""

    def store(self, api: KubeApi) -> FigureStore | None:
        """Return what keeps them, `None` where nothing does."""
        if self.file:
            return FileStore(self.file)
        if self.config_map:
            namespace, _, name = self.config_map.rpartition("/")
            return ConfigMapStore(JobNamespace(api, namespace or EXTENDERS_NAMESPACE), name)
        return None


@dataclass(frozen=True, slots=True)
class CommandReport:
    """What is to be printed, and what to end with."""

    document: dict[str, Any]
    text: str
    notes: tuple[str, ...] = ()
    """For stderr."""
    exit_code: int = 0


async def measure_cluster(
    config: Kubeconfig,
    namespace: str,
    wanted: JobOptions,
    limits: MeasurementLimits,
    place: StoreLocation,
    say: Callable[[str], None],
    pace: PollTimes = PollTimes(),  # noqa: B008 - a frozen value
) -> CommandReport:
    """Measure the kinds of machines of a cluster; raises `Unusable` where figures could not be kept, before any Job."""
    state = await read_state(config, ClusterState(resource=wanted.resource))
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        store = place.store(api)
        known = await store.read() if store and not limits.again else {}
        views = [view for view in state.views.values() if selected(view, limits.labels)]
        found = survey(views, known=known.keys(), max_jobs=limits.max_jobs, max_sets=limits.max_sets)
        if limits.dry_run:
            document = {"rows": table.plan_as_rows(found), "skipped": table.skipped(found)}
            return CommandReport(document, table.plan_as_text(found))
        measuring = Measuring(JobNamespace(api, namespace), wanted, say, _utc_now, pace)
        await _until_interrupted(measuring.run(found.targets), say)
        unkept = await _keep(store, measuring.outcomes)
    return _report(found, measuring.outcomes, [*table.problems(measuring.outcomes, namespace), *unkept])


def _report(found: Survey, outcomes: list[MeasurementOutcome], wrong: list[str]) -> CommandReport:
    rows = table.as_rows(outcomes)
    document = {"rows": rows, "skipped": table.skipped(found), "problems": wrong}
    interrupted = any(outcome.problem == INTERRUPTED for outcome in outcomes)
    code = EXIT_INTERRUPTED if interrupted else EXIT_FAILED if wrong or not rows else 0
    return CommandReport(document, table.as_text(rows), (*table.skipped_as_text(found.skipped), *wrong), code)


async def _keep(store: FigureStore | None, outcomes: list[MeasurementOutcome]) -> list[str]:
    """Keep what was measured; returns why that failed, for the figures are printed all the same."""
    new = {outcome.target.kind: outcome.machine for outcome in outcomes if outcome.figures}
    try:
        if store and new:
            await store.add(new)
    except (Unusable, Unavailable) as error:
        return [f"not kept: {error}"]
    return []


async def _until_interrupted(work: Coroutine[Any, Any, None], say: Callable[[str], None]) -> None:
    """Do the work; Ctrl-C, or whoever ends us, ends it early and in order."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if not task.cancelling():  # once: a Job that is left holds a whole node
            say("interrupted; the Jobs are being removed")
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        with suppress(asyncio.CancelledError):
            await task
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _utc_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
