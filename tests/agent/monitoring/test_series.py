"""What GPUs do and who holds them has its series, by UUID, in Prometheus' units."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.gpus.activity import Activity, ClockReason
from agent.metrics import AgentMetrics
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod

BUSY = Activity(
    uuid="GPU-a", utilization_percent=75, memory_busy_percent=40, memory_total_bytes=80, memory_used_bytes=60,
    memory_reserved_bytes=5, temperature_celsius=61, memory_temperature_celsius=70, power_milliwatts=412500,
    power_limit_milliwatts=700000, energy_millijoules=9000, sm_clock_mhz=1980, memory_clock_mhz=2619,
    nvlink_sent_kib=2, nvlink_received_kib=3, pcie_sent_bytes=4, pcie_received_bytes=5,
)  # fmt: skip


def samples(activities: Iterable[Activity] = (), pods: Iterable[ListedPod] | None = ()) -> dict[tuple[str, ...], float]:
    """Return name and values of the labels, by label → value, of all series of GPUs."""
    metrics = AgentMetrics("test")
    metrics.watch_activity(lambda: activities)
    metrics.watch_holders(lambda: pods)
    return {
        (sample.name.removeprefix("gputopo_gpu_"), *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.name.startswith("gputopo_gpu_")
    }


def test_figures_are_told_in_base_units() -> None:
    """Ratios from 0 to 1, hertz, watts, joules, bytes."""
    assert samples([BUSY]) == pytest.approx(
        {
            ("utilization_ratio", "GPU-a"): 0.75,
            ("memory_busy_ratio", "GPU-a"): 0.4,
            ("memory_total_bytes", "GPU-a"): 80,
            ("memory_used_bytes", "GPU-a"): 60,
            ("memory_reserved_bytes", "GPU-a"): 5,
            ("temperature_celsius", "GPU-a"): 61,
            ("memory_temperature_celsius", "GPU-a"): 70,
            ("power_watts", "GPU-a"): 412.5,
            ("power_limit_watts", "GPU-a"): 700,
            ("energy_joules_total", "GPU-a"): 9,
            ("sm_clock_hertz", "GPU-a"): 1.98e9,
            ("memory_clock_hertz", "GPU-a"): 2.619e9,
            ("nvlink_bytes_total", "sent", "GPU-a"): 2048,
            ("nvlink_bytes_total", "received", "GPU-a"): 3072,
            ("pcie_bytes_total", "sent", "GPU-a"): 4,
            ("pcie_bytes_total", "received", "GPU-a"): 5,
        }
    )


def test_what_is_not_known_is_absent() -> None:
    """Nought would be a value."""
    assert samples([Activity("GPU-a", utilization_percent=0)]) == {("utilization_ratio", "GPU-a"): 0}


def test_each_reason_of_slow_clocks_is_told_as_yes_or_no() -> None:
    """One that has passed is 0, so that a graph shows how long it lasted."""
    reasons = frozenset({ClockReason.IDLE})
    told = samples([Activity("GPU-a", clock_reasons=reasons), Activity("GPU-b", clock_reasons=frozenset())])
    assert {key for key, value in told.items() if value} == {("clock_event_reason", "idle", "GPU-a")}
    assert len(told) == 2 * len(ClockReason)


def test_holders_are_told_by_container() -> None:
    """Several on one GPU where it is shared, and each once, however many replicas of it a container has."""
    pods = [
        ListedPod("a", "train-0", (ListedContainer("main", frozenset({"GPU-1", "GPU-2"})), ListedContainer("side"))),
        ListedPod("b", "notebook", (ListedContainer("main", frozenset({"GPU-3::0", "GPU-3::4"})),)),
        ListedPod("c", "notebook", (ListedContainer("main", frozenset({"GPU-3::1"})),)),
    ]
    assert samples(pods=pods) == {
        ("holder_info", "main", "a", "train-0", "GPU-1"): 1,
        ("holder_info", "main", "a", "train-0", "GPU-2"): 1,
        ("holder_info", "main", "b", "notebook", "GPU-3"): 1,
        ("holder_info", "main", "c", "notebook", "GPU-3"): 1,
    }


def test_a_kubelet_that_does_not_say_makes_no_holders() -> None:
    """Nor does it make GPUs that nobody holds."""
    assert samples(pods=None) == {}
