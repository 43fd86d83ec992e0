"""What GPUs do is read through the real binding, in NVML's units; what it does not say is not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pynvml
import pytest

from agent.errors import NvmlUnavailable
from agent.gpus.activity import Activity, ClockReason
from agent.gpus.nvml.activity_reader import read_activity
from tests.nvml.library import FakeNvml, machine

Described = Callable[..., Path]

BUSY = (
    "gpu 2 utilization 75", "gpu 2 memory_busy 40", "gpu 2 temperature 61", "gpu 2 memory_temperature 70",
    "gpu 2 power_mw 412500", "gpu 2 power_limit_mw 700000", "gpu 2 energy_mj 9000", "gpu 2 sm_clock_mhz 1980",
    "gpu 2 memory_clock_mhz 2619", "gpu 2 slowdown 68", "gpu 2 nvlink_tx_kib 5000000000", "gpu 2 nvlink_rx_kib 7",
    "gpu 2 pcie_tx_bytes 6000000000", "gpu 2 pcie_rx_bytes 8", "gpu 2 used_mib 1000",
)  # fmt: skip
MIB = 1 << 20
CALLS = (
    "nvmlDeviceGetUUID", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetFieldValues", "*",
)  # fmt: skip


@pytest.fixture
def activities(fake_nvml: FakeNvml, described: Described) -> Callable[..., tuple[Activity, ...]]:
    """Return what the GPUs of an HGX H100 do, with these lines beside its description."""

    def _activities(*lines: str) -> tuple[Activity, ...]:
        with fake_nvml.loaded(described("hgx_h100", *lines)):
            return read_activity()

    return _activities


def test_all_that_nvml_says_of_a_busy_gpu(activities: Callable[..., tuple[Activity, ...]]) -> None:
    """Counters of bytes have 64 bits; the reasons of slow clocks are told apart."""
    assert activities(*BUSY)[2] == Activity(
        uuid="GPU-41000000-0000-4000-8000-000000000002",
        utilization_percent=75,
        memory_busy_percent=40,
        memory_total_bytes=81559 * MIB,
        memory_used_bytes=1000 * MIB,
        memory_reserved_bytes=551 * MIB,
        temperature_celsius=61,
        memory_temperature_celsius=70,
        power_milliwatts=412500,
        power_limit_milliwatts=700000,
        energy_millijoules=9000,
        sm_clock_mhz=1980,
        memory_clock_mhz=2619,
        clock_reasons=frozenset({ClockReason.SOFTWARE_POWER_CAP, ClockReason.HARDWARE_THERMAL}),
        nvlink_sent_kib=5_000_000_000,
        nvlink_received_kib=7,
        pcie_sent_bytes=6_000_000_000,
        pcie_received_bytes=8,
    )


def test_what_nvml_does_not_say_is_not_nought(activities: Callable[..., tuple[Activity, ...]]) -> None:
    """A GPU of which only the memory is known."""
    quiet = activities(*BUSY)[3]
    known = {field.name for field in fields(Activity) if getattr(quiet, field.name) is not None}
    assert known == {"uuid", "memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes"}


def test_a_counter_of_32_bits_is_not_believed(activities: Callable[..., tuple[Activity, ...]]) -> None:
    """It would be full several times a second, and tell any rate; a temperature of 32 bits is one."""
    gpu = activities(*BUSY, "gpu 2 counter_bits 32")[2]
    assert (gpu.nvlink_sent_kib, gpu.nvlink_received_kib, gpu.pcie_sent_bytes, gpu.pcie_received_bytes) == (None,) * 4
    assert gpu.memory_temperature_celsius == 70


def test_an_old_driver_says_what_memory_is_in_use(activities: Callable[..., tuple[Activity, ...]]) -> None:
    """It counts what it keeps for itself."""
    gpu = activities(*BUSY, "fail nvmlDeviceGetMemoryInfo_v2 0-7 FUNCTION_NOT_FOUND")[2]
    assert (gpu.memory_used_bytes, gpu.memory_reserved_bytes) == (1551 * MIB, None)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_costs_its_own_figures_only(
    call: str, activities: Callable[..., tuple[Activity, ...]]
) -> None:
    """And those of no other GPU."""
    whole = activities(*BUSY)
    found = activities(*BUSY, f"fail {call} 2 UNKNOWN")
    others = [gpu for gpu in found if gpu.uuid != whole[2].uuid]
    assert others == [gpu for gpu in whole if gpu.uuid != whole[2].uuid]
    for gpu in set(found) - set(others):
        told = {field.name: getattr(gpu, field.name) for field in fields(gpu)}
        assert gpu == replace(
            whole[2], **{name: value for name, value in told.items() if value is None or "memory" in name}
        )


@pytest.mark.parametrize("name", ["no_driver", "driver_updated"])
def test_nvml_that_does_not_work_is_no_machine_without_gpus(fake_nvml: FakeNvml, name: str) -> None:
    """Who reads has to be told."""
    with fake_nvml.loaded(machine(name)), pytest.raises(NvmlUnavailable):
        read_activity()


def test_nvml_is_closed_after_each_reading(fake_nvml: FakeNvml) -> None:
    """Else the driver could not be unloaded."""
    with fake_nvml.loaded(machine("hgx_h100")):
        assert len(read_activity()) == 8
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetCount()
