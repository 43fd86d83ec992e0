"""The series of what GPUs do and of who holds them, by UUID; what NVML does not say is absent.

Nothing is read for a scrape: the values are those of the last sample, and of the last list of pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.gpus.activity import Activity, ClockReason
from agent.plugin.devices.offers import gpu_of
from agent.plugin.pods.listed_pods import ListedPod

_Row: TypeAlias = tuple[str, str, Callable[[Activity], float | None]]


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


_GAUGES: Final[tuple[_Row, ...]] = (
    ("utilization_ratio", "Fraction of the last moment with a kernel.", lambda gpu: _scaled(gpu.utilization_percent, 0.01)),
    ("memory_busy_ratio", "Fraction of the last moment with memory access.", lambda gpu: _scaled(gpu.memory_busy_percent, 0.01)),
    ("memory_total_bytes", "Memory.", lambda gpu: gpu.memory_total_bytes),
    ("memory_used_bytes", "Memory in use; before driver 510 with the driver's.", lambda gpu: gpu.memory_used_bytes),
    ("memory_reserved_bytes", "Memory that the driver reserves.", lambda gpu: gpu.memory_reserved_bytes),
    ("temperature_celsius", "Temperature of the chip.", lambda gpu: gpu.temperature_celsius),
    ("memory_temperature_celsius", "Temperature of its memory.", lambda gpu: gpu.memory_temperature_celsius),
    ("power_watts", "Power draw.", lambda gpu: _scaled(gpu.power_milliwatts, 1e-3)),
    ("power_limit_watts", "Power limit.", lambda gpu: _scaled(gpu.power_limit_milliwatts, 1e-3)),
    ("sm_clock_hertz", "Clock of the multiprocessors.", lambda gpu: _scaled(gpu.sm_clock_mhz, 1e6)),
    ("memory_clock_hertz", "Clock of its memory.", lambda gpu: _scaled(gpu.memory_clock_mhz, 1e6)),
)  # fmt: skip
_ENERGY: Final[_Row] = (
    "energy_joules",
    "Energy since the driver was loaded or the GPU reset.",
    lambda gpu: _scaled(gpu.energy_millijoules, 1e-3),
)
_SENT, _RECEIVED = "sent", "received"
_LINKS: Final[tuple[tuple[str, str, Callable[[Activity], dict[str, float | None]]], ...]] = (
    (
        "nvlink_bytes",
        "Payload `sent` and `received` over all NVLinks (fields 138 and 139).",
        lambda gpu: {_SENT: _scaled(gpu.nvlink_sent_kib, 1024), _RECEIVED: _scaled(gpu.nvlink_received_kib, 1024)},
    ),
    (
        "pcie_bytes",
        "Bytes `sent` and `received` over PCIe (fields 197 and 198).",
        lambda gpu: {_SENT: gpu.pcie_sent_bytes, _RECEIVED: gpu.pcie_received_bytes},
    ),
)


class ActivitySeries(Collector):
    """Collects what one node's GPUs do; `read` gives the last sample."""

    def __init__(self, read: Callable[[], Iterable[Activity]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Name the series before there is a sample."""
        return _of_activity([])

    def collect(self) -> Iterable[Metric]:
        """Return the series of the last sample."""
        return _of_activity([*self._read()])


class HolderSeries(Collector):
    """Collects who holds which GPU; `pods` gives the node's pods, or `None` while the kubelet does not say."""

    def __init__(self, pods: Callable[[], Iterable[ListedPod] | None]) -> None:
        self._pods = pods

    def describe(self) -> Iterable[Metric]:
        """Name the series before there is a pod."""
        return [_of_holders(())]

    def collect(self) -> Iterable[Metric]:
        """Return one series for each GPU of each container."""
        return [_of_holders(self._pods() or ())]


def _of_activity(gpus: list[Activity]) -> Iterator[Metric]:
    for name, text, value in _GAUGES:
        yield _filled(GaugeMetricFamily(f"gputopo_gpu_{name}", text, labels=["uuid"]), gpus, value)
    name, text, value = _ENERGY
    yield _filled(CounterMetricFamily(f"gputopo_gpu_{name}", text, labels=["uuid"]), gpus, value)
    for name, text, values in _LINKS:
        counter = CounterMetricFamily(f"gputopo_gpu_{name}", text, labels=["uuid", "direction"])
        for gpu in gpus:
            for direction, reading in values(gpu).items():
                if reading is not None:
                    counter.add_metric([gpu.uuid, direction], reading)
        yield counter
    yield _reasons(gpus)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, gpus: list[Activity], value: Callable[[Activity], float | None]
) -> Metric:
    for gpu in gpus:
        if (reading := value(gpu)) is not None:
            family.add_metric([gpu.uuid], reading)
    return family


def _reasons(gpus: list[Activity]) -> Metric:
    family = GaugeMetricFamily(
        "gputopo_gpu_clock_event_reason",
        "1 for each reason that limits its clocks.",
        labels=["uuid", "reason"],
    )
    for gpu in gpus:
        for reason in ClockReason if gpu.clock_reasons is not None else ():
            family.add_metric([gpu.uuid, reason], reason in (gpu.clock_reasons or ()))
    return family


def _of_holders(pods: Iterable[ListedPod]) -> Metric:
    family = GaugeMetricFamily(
        "gputopo_gpu_holder_info",
        "1 for each container that holds it, as the kubelet lists them.",
        labels=["uuid", "namespace", "pod", "container"],
    )
    for pod in pods:
        for container in pod.containers:
            for uuid in sorted({gpu_of(device) for device in container.gpus}):  # several replicas are one GPU
                family.add_metric([uuid, pod.namespace, pod.name, container.name], 1)
    return family
