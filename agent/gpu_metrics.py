"""A series for each GPU and each thing that is known of its health; what NVML does not say is absent.

The label is the UUID, by which other exporters are joined. Nothing is read for a scrape: the values are those of the last look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.gpus.facts import GpuFacts, Known, value_of
from agent.gpus.health.readings import GpuReading
from agent.health.record import State

_Value = Callable[[GpuFacts], float | None]
_Values = Callable[[GpuReading], Iterable[tuple[tuple[str, ...], float]]]
"""The other labels' values, and what is counted with them."""


def _of_rows(gpu: GpuFacts, field: str) -> float | None:
    rows = value_of(gpu.remapped_rows)
    return None if rows is None else float(getattr(rows, field))


def _fabric_health(gpu: GpuFacts) -> float | None:
    fabric = value_of(gpu.fabric)
    return fabric.health or None if fabric else None


_GAUGES: Final[dict[str, tuple[str, _Value]]] = {
    "recovery_action": (
        "What the driver requests (NVML's field 230).",
        lambda gpu: value_of(gpu.watched.recovery_action),
    ),
    "row_remap_pending": ("1 if a memory row waits for the next reset.", lambda gpu: _of_rows(gpu, "pending")),
    "row_remap_failed": ("1 if no spare memory row was left.", lambda gpu: _of_rows(gpu, "failed")),
    "sram_threshold_exceeded": (
        "1 if errors of on-chip memory exceed the driver's limit; Ampere or later.",
        lambda gpu: value_of(gpu.watched.sram_exceeded),
    ),
    "memory_banks_without_spares": (
        "Memory banks without a spare row.",
        lambda gpu: value_of(gpu.watched.banks_without_spares),
    ),
    "temperature_margin_celsius": (
        "Margin before heat slows it down.",
        lambda gpu: value_of(gpu.watched.margin_celsius),
    ),
    "pcie_link_width": ("PCIe lanes in use.", lambda gpu: value_of(gpu.watched.pcie_width)),
    "fabric_health": ("NVML's summary of the NVLink fabric: 1 healthy, 2 unhealthy, 3 less bandwidth.", _fabric_health),
    "throttled": ("1 while heat or power slows it down.", lambda gpu: value_of(gpu.watched.throttled)),
}


def _links_by_state(gpu: GpuReading) -> Iterator[tuple[tuple[str], int]]:
    links = value_of(gpu.facts.nvlinks) or ()
    for state, is_up in (("up", True), ("down", False)):
        if links:
            yield (state,), sum(link.active == Known(is_up) for link in links)


def _rows_by_cause(gpu: GpuReading) -> Iterator[tuple[tuple[str], int]]:
    if rows := value_of(gpu.facts.remapped_rows):
        yield ("corrected",), rows.after_corrected
        yield ("uncorrected",), rows.after_uncorrected


def _slow_seconds(gpu: GpuReading) -> Iterator[tuple[tuple[str], float]]:
    for reason, nanoseconds in (value_of(gpu.facts.watched.throttled_nanoseconds) or {}).items():
        yield (reason,), nanoseconds / 1e9


_COUNTERS: Final[dict[str, tuple[str, _Value]]] = {
    "uncorrected_errors": (
        "Uncorrected memory errors over its life.",
        lambda gpu: value_of(gpu.watched.uncorrected_errors),
    ),
    "pcie_replays": (
        "Repeated PCIe transfers since the driver was loaded.",
        lambda gpu: value_of(gpu.watched.pcie_replays),
    ),
}


_LABELLED_GAUGES: Final[dict[str, tuple[str, tuple[str, ...], _Values]]] = {
    "nvlinks": ("NVLinks: `up`, `down`.", ("state",), _links_by_state),
    "remapped_rows": ("Replaced memory rows, after `corrected` and `uncorrected` errors.", ("cause",), _rows_by_cause),
    "xid_last_timestamp_seconds": (
        "Time of the last error of this number.",
        ("xid",),
        lambda gpu: (((str(number),), errors.last) for number, errors in gpu.xids.items()),
    ),
    "last_xid": (
        "The last critical error since the agent started; 0: none.",
        (),
        lambda gpu: [((), max(gpu.xids, key=lambda number: gpu.xids[number].last, default=0))],
    ),
    "collected_timestamp_seconds": ("Time of the scan of these values.", (), lambda gpu: [((), gpu.at)]),
}
_LABELLED_COUNTERS: Final[dict[str, tuple[str, tuple[str, ...], _Values]]] = {
    "xid_errors": (
        "Critical errors since the agent started.",
        ("xid",),
        lambda gpu: (((str(number),), errors.count) for number, errors in gpu.xids.items()),
    ),
    "ecc_errors": (
        "Memory errors over its life, by kind and place.",
        ("kind", "location"),
        lambda gpu: (value_of(gpu.facts.watched.memory_errors) or {}).items(),
    ),
    "nvlink_errors": (
        "NVLink errors since the driver was loaded.",
        ("kind",),
        lambda gpu: (((kind,), count) for kind, count in (value_of(gpu.facts.watched.nvlink_errors) or {}).items()),
    ),
    "throttled_seconds": ("Time of being slowed down since the driver was loaded.", ("reason",), _slow_seconds),
}


class GpuSeries(Collector):
    """Collects the series of one node's GPUs; `read` gives the last look."""

    def __init__(self, read: Callable[[], Iterable[GpuReading]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Name the series before there is a GPU."""
        return _families([])

    def collect(self) -> Iterable[Metric]:
        """Return the series of the last look."""
        return _families([*self._read()])


def _families(readings: list[GpuReading]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "gputopo_gpu_info", "1, with index, model and PCI address.", labels=["uuid", "gpu", "model", "pci"]
    )
    health = GaugeMetricFamily("gputopo_gpu_health", "1 for its state, 0 for the others.", labels=["uuid", "state"])
    for gpu in readings:
        model, pci = value_of(gpu.facts.model) or "", value_of(gpu.facts.pci) or ""
        info.add_metric([gpu.uuid, str(gpu.index), model, pci], 1)
        for state in State:
            health.add_metric([gpu.uuid, state], gpu.state is state)
    yield from (info, health)
    for name, (text, value) in _GAUGES.items():
        yield _filled(GaugeMetricFamily(f"gputopo_gpu_{name}", text, labels=["uuid"]), readings, value)
    for name, (text, value) in _COUNTERS.items():
        yield _filled(CounterMetricFamily(f"gputopo_gpu_{name}", text, labels=["uuid"]), readings, value)
    for name, (text, labels, values) in _LABELLED_GAUGES.items():
        yield _spread(GaugeMetricFamily(f"gputopo_gpu_{name}", text, labels=["uuid", *labels]), readings, values)
    for name, (text, labels, values) in _LABELLED_COUNTERS.items():
        yield _spread(CounterMetricFamily(f"gputopo_gpu_{name}", text, labels=["uuid", *labels]), readings, values)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, readings: Iterable[GpuReading], value: _Value
) -> GaugeMetricFamily | CounterMetricFamily:
    for gpu in readings:
        if (reading := value(gpu.facts)) is not None:
            family.add_metric([gpu.uuid], reading)
    return family


def _spread(
    family: GaugeMetricFamily | CounterMetricFamily, readings: Iterable[GpuReading], values: _Values
) -> GaugeMetricFamily | CounterMetricFamily:
    for gpu in readings:
        for labels, value in values(gpu):
            family.add_metric([gpu.uuid, *labels], value)
    return family
