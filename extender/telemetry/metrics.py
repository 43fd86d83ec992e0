"""What Prometheus scrapes: series are declared as values, and counted by their declarations.

The core and each feature declare their own series; `Metrics` registers all that it is given. No label ever holds the name of a
pod, a node or a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from importlib.metadata import version
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "gputopo_"
"""Of all names."""
RECENT_SECONDS: Final = 1.0
"""Age of an exposition that is still served: it costs milliseconds, and many may ask for it."""

Figures = Mapping[str, float]
"""Gauge name, without the prefix → value."""


class SeriesKind(Enum):
    """How the values of a series come about."""

    COUNTER = auto()
    """`Metrics.count` adds one, or an amount. The exposed names end in `_total`."""
    HISTOGRAM = auto()
    """`Metrics.observe` takes each value."""
    GAUGE = auto()
    """`Metrics.show` sets the value."""
    READ = auto()
    """A gauge whose value is read at each scrape; see `Metrics.watch` and `Metrics.watch_labels`."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """Series of one name: one for each combination of label values."""

    name: str
    """With the prefix."""
    help: str
    kind: SeriesKind
    labels: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    """Of the labels: the combinations that exist from the start, so that the first event is an increase."""
    buckets: tuple[float, ...] = ()
    """Of a histogram."""


def read_gauges(helps: Mapping[str, str]) -> tuple[Declaration, ...]:
    """Declare gauges without labels that are read at each scrape, by name without the prefix."""
    return tuple(Declaration(f"{PREFIX}{name}", text, SeriesKind.READ) for name, text in helps.items())


BUILD_INFO: Final = Declaration(
    "gputopo_build_info",
    "1, with the version and a digest of the configuration.",
    SeriesKind.GAUGE,
    ("version", "config"),
)
"""Of every extender, whatever else it declares."""


class Metrics:
    """The series of one extender, in a registry of their own."""

    def __init__(self, config_digest: str, declarations: Iterable[Declaration]) -> None:
        """Register the series; raises `ValueError` where two declarations share a name."""
        self._registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._gauges: dict[str, Gauge] = {}
        self._read: list[Declaration] = []
        for declaration in declarations:
            self._register(declaration)
        self._register(BUILD_INFO)
        self.show(BUILD_INFO, {(version("gputopo"), config_digest): 1})

    def count(self, declaration: Declaration, *labels: str, amount: float = 1.0) -> None:
        """Count one event, or add an amount."""
        _series(self._counters[declaration.name], labels).inc(amount)

    def begin(self, declaration: Declaration, *labels: str) -> None:
        """Begin a series at zero, so that its first event is an increase."""
        _series(self._counters[declaration.name], labels)

    def observe(self, declaration: Declaration, value: float, *labels: str) -> None:
        """Take one value into a histogram."""
        _series(self._histograms[declaration.name], labels).observe(value)

    def show(self, declaration: Declaration, figures: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge to these figures, by label values; its other series end."""
        gauge = self._gauges[declaration.name]
        gauge.clear()
        for labels, figure in figures.items():
            gauge.labels(*labels).set(figure)

    def watch(self, read: Callable[[], Figures]) -> None:
        """Ask `read` for all gauges without labels at each scrape; one that it does not return is absent."""
        plain = [declaration for declaration in self._read if not declaration.labels]

        def families() -> Iterator[GaugeMetricFamily]:
            figures = read()
            for declaration in plain:
                name = declaration.name.removeprefix(PREFIX)
                if name in figures:
                    yield GaugeMetricFamily(declaration.name, declaration.help, value=figures[name])

        self._registry.register(_AtScrape(families))

    def watch_labels(self, declaration: Declaration, read: Callable[[], Mapping[str, float]]) -> None:
        """Ask `read` for the values of a gauge by its only label at each scrape; declared values are zero without."""

        def families() -> Iterator[GaugeMetricFamily]:
            family = GaugeMetricFamily(declaration.name, declaration.help, labels=declaration.labels)
            for value, figure in ({value: 0.0 for (value,) in declaration.values} | dict(read())).items():
                family.add_metric([value], figure)
            yield family

        self._registry.register(_AtScrape(families))

    def exposition(self) -> bytes:
        """Return all series in the text format."""
        return generate_latest(self._registry)

    def _register(self, declaration: Declaration) -> None:
        name, text, labels, registry = declaration.name, declaration.help, declaration.labels, self._registry
        family: Counter | Gauge | Histogram
        match declaration.kind:
            case SeriesKind.COUNTER:
                family = self._counters[name] = Counter(name, text, labels, registry=registry)
            case SeriesKind.HISTOGRAM:
                buckets = declaration.buckets
                family = self._histograms[name] = Histogram(name, text, labels, buckets=buckets, registry=registry)
            case SeriesKind.GAUGE:
                family = self._gauges[name] = Gauge(name, text, labels, registry=registry)
            case SeriesKind.READ:
                self._read.append(declaration)
                return
        for values in declaration.values:
            family.labels(*values)


class Recent:
    """What is made when it is asked for, and then serves everybody for some seconds."""

    def __init__(self, make: Callable[[], bytes], seconds: float = RECENT_SECONDS) -> None:
        self._make = make
        self._seconds = seconds
        self._made: bytes | None = None
        self._made_at = 0.0

    def at(self, now: float) -> bytes:
        """Return it as of `now` (monotonic, in seconds), or not long before."""
        if self._made is None or now - self._made_at >= self._seconds:
            self._made, self._made_at = self._make(), now
        return self._made


_Family = TypeVar("_Family", Counter, Histogram)


class _AtScrape(Collector):
    def __init__(self, families: Callable[[], Iterator[GaugeMetricFamily]]) -> None:
        self._families = families

    def collect(self) -> Iterator[GaugeMetricFamily]:
        return self._families()


def _series(family: _Family, labels: tuple[str, ...]) -> _Family:
    return family.labels(*labels) if labels else family
