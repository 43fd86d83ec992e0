"""The page of metrics: its prose is written by hand, and its tables are made of what both programs declare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agent.gpu_metrics import GpuSeries
from agent.metrics import AgentMetrics
from agent.monitoring.series import ActivitySeries, HolderSeries
from extender.features.registry import DECLARATIONS
from extender.telemetry.metrics import BUILD_INFO, SeriesKind
from tests.manifests.helm import MANIFESTS
from tests.manifests.made_tables import MadeTables


def of_the_extender() -> str:
    """Return a line for each series of an extender with all features."""
    return _list(
        (
            f"{declaration.name}{'_total' if declaration.kind is SeriesKind.COUNTER else ''}",
            declaration.labels,
            _text(declaration.help, is_histogram=declaration.kind is SeriesKind.HISTOGRAM),
        )
        for declaration in (*DECLARATIONS, BUILD_INFO)
    )


def of_the_agent() -> str:
    """Return a line for each series of the agent itself."""
    return _list(_described(AgentMetrics("0")._registry._collector_to_names))


def of_the_gpus() -> str:
    """Return a line for each series of a GPU's health."""
    return _list(_described([GpuSeries(list)]))


def of_activity() -> str:
    """Return a line for each series of what a GPU does and who holds it."""
    return _list(_described([ActivitySeries(list), HolderSeries(list)]))


def _described(collectors: Iterable[Any]) -> Iterator[tuple[str, Iterable[str], str]]:
    """Yield name, labels and text of each series; the client library has no public way to read the names of labels."""
    for collector in collectors:
        for family in collector.describe():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = (family if hasattr(family, "_labelnames") else collector)._labelnames
            yield name, labels, _text(family.documentation, is_histogram=family.type == "histogram")


def _text(words: str, *, is_histogram: bool) -> str:
    return f"Histogram: {words[0].lower()}{words[1:]}" if is_histogram else words


def _list(rows: Iterable[tuple[str, Iterable[str], str]]) -> str:
    return "".join(
        f"- `{name}{{{','.join(labels)}}}`: {text}\n" if labels else f"- `{name}`: {text}\n"
        for name, labels, text in sorted(rows)
    )


METRICS = MadeTables(
    MANIFESTS.parent / "docs" / "reference" / "metrics.md",
    {
        "metrics of the extender": of_the_extender,
        "metrics of the agent": of_the_agent,
        "health of GPUs": of_the_gpus,
        "activity of GPUs": of_activity,
    },
)
