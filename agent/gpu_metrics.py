"""A series for each GPU and each thing that is known of its health; what NVML does not say is absent.

The label is the UUID, by which other exporters are joined. Nothing is read for a scrape: the values are those of the last look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.gpus.facts import GpuFacts, value_of
from agent.gpus.readings import Reading
from agent.health.record import State

_Value = Callable[[GpuFacts], float | None]


def _of_rows(gpu: GpuFacts, field: str) -> float | None:
    rows = value_of(gpu.remapped_rows)
    return None if rows is None else float(getattr(rows, field))


_GAUGES: Final[dict[str, tuple[str, _Value]]] = {
    "recovery_action": (
        "What the driver asks for, as NVML's field 230; 0: nothing.",
        lambda gpu: value_of(gpu.watched.recovery_action),
    ),
    "row_remap_pending": ("Whether a memory row waits for the next reset.", lambda gpu: _of_rows(gpu, "pending")),
    "row_remap_failed": ("Whether no spare memory row was left.", lambda gpu: _of_rows(gpu, "failed")),
    "throttled": ("Whether heat or its power supply slow it down.", lambda gpu: value_of(gpu.watched.throttled)),
}
_COUNTERS: Final[dict[str, tuple[str, _Value]]] = {
    "uncorrected_errors": (
        "Memory errors that could not be corrected, over its life.",
        lambda gpu: value_of(gpu.watched.uncorrected_errors),
    ),
}


class GpuSeries(Collector):
    """Collects the series of one node's GPUs; `read` gives the last look."""

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Name the series before there is a GPU."""
        return _families([])

    def collect(self) -> Iterable[Metric]:
        """Return the series of the last look."""
        return _families([*self._read()])


def _families(readings: list[Reading]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "gputopo_gpu_info", "1, with what does not change.", labels=["uuid", "gpu", "model", "pci"]
    )
    health = GaugeMetricFamily("gputopo_gpu_health", "1 for the state that it is in.", labels=["uuid", "state"])
    xids = CounterMetricFamily(
        "gputopo_gpu_xid_errors", "Critical errors since the agent began.", labels=["uuid", "xid"]
    )
    for gpu in readings:
        model, pci = value_of(gpu.facts.model) or "", value_of(gpu.facts.pci) or ""
        info.add_metric([gpu.uuid, str(gpu.index), model, pci], 1)
        for state in State:
            health.add_metric([gpu.uuid, state], gpu.state is state)
        for number, count in sorted(gpu.xids.items()):
            xids.add_metric([gpu.uuid, str(number)], count)
    yield from (info, health, xids)
    for name, (text, value) in _GAUGES.items():
        yield _filled(GaugeMetricFamily(f"gputopo_gpu_{name}", text, labels=["uuid"]), readings, value)
    for name, (text, value) in _COUNTERS.items():
        yield _filled(CounterMetricFamily(f"gputopo_gpu_{name}", text, labels=["uuid"]), readings, value)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, readings: Iterable[Reading], value: _Value
) -> GaugeMetricFamily | CounterMetricFamily:
    for gpu in readings:
        if (found := value(gpu.facts)) is not None:
            family.add_metric([gpu.uuid], found)
    return family
