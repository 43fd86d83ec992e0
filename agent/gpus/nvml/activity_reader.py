"""Read what GPUs do through `nvidia-ml-py`, with calls that cost microseconds and wait for nothing.

`nvmlDeviceGetPcieThroughput` is not among them: it measures for 20 ms while the caller waits. The bytes that PCIe has carried
are a counter, which drivers have that say them at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pynvml

from agent.gpus.activity import Activity, ClockReason
from agent.gpus.facts import Known, value_of
from agent.gpus.nvml.answers import ask
from agent.gpus.nvml.reader import opened, unavailable

_CLOCK_REASONS = {
    pynvml.nvmlClocksEventReasonGpuIdle: ClockReason.IDLE,
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: ClockReason.APPLICATION_CLOCKS,
    pynvml.nvmlClocksEventReasonSwPowerCap: ClockReason.SOFTWARE_POWER_CAP,
    pynvml.nvmlClocksEventReasonHwSlowdown: ClockReason.HARDWARE_SLOWDOWN,
    pynvml.nvmlClocksEventReasonSyncBoost: ClockReason.SYNC_BOOST,
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: ClockReason.SOFTWARE_THERMAL,
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: ClockReason.HARDWARE_THERMAL,
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: ClockReason.POWER_BRAKE,
    pynvml.nvmlClocksEventReasonDisplayClockSetting: ClockReason.DISPLAY_CLOCKS,
}
_ALL_LINKS = 0xFFFFFFFF
_FIELDS = {
    "memory_temperature_celsius": (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0),
    "nvlink_sent_kib": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
    "nvlink_received_kib": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
    "pcie_sent_bytes": (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0),
    "pcie_received_bytes": (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0),
}
_COUNTERS = {name for name in _FIELDS if name.endswith(("_kib", "_bytes"))}
_LONG = {pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal", pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal"}
_SHORT = {pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal", pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal"}


def read_activity() -> tuple[Activity, ...]:
    """Return what each GPU does now that says its UUID; raises `NvmlUnavailable`."""
    with opened():
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise unavailable(error) from error
        return tuple(_activities(count))


def _activities(count: int) -> Iterator[Activity]:
    for index in range(count):
        handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = ask(pynvml.nvmlDeviceGetUUID, handle.value) if isinstance(handle, Known) else handle
        if isinstance(handle, Known) and isinstance(uuid, Known):
            yield _activity(handle.value, uuid.value)


def _activity(handle: Any, uuid: str) -> Activity:
    rates = _say(pynvml.nvmlDeviceGetUtilizationRates, handle)
    # Version 2 came with driver 510; version 1 counts as used what the driver keeps.
    memory = _say(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    memory = memory or _say(pynvml.nvmlDeviceGetMemoryInfo, handle)
    reasons = _say(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    return Activity(
        uuid,
        utilization_percent=rates and rates.gpu,
        memory_busy_percent=rates and rates.memory,
        memory_total_bytes=memory and memory.total,
        memory_used_bytes=memory and memory.used,
        memory_reserved_bytes=getattr(memory, "reserved", None),
        temperature_celsius=_say(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power_milliwatts=_say(pynvml.nvmlDeviceGetPowerUsage, handle),
        power_limit_milliwatts=_say(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
        energy_millijoules=_say(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        sm_clock_mhz=_say(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=_say(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        clock_reasons=None
        if reasons is None
        else frozenset(why for bit, why in _CLOCK_REASONS.items() if reasons & bit),
        **_fields(handle),
    )


def _say(function: Any, *arguments: object) -> Any:
    return value_of(ask(function, *arguments))


def _fields(handle: Any) -> dict[str, int]:
    """Return what is known of the fields, all asked for in one call."""
    values = _say(pynvml.nvmlDeviceGetFieldValues, handle, list(_FIELDS.values()))
    numbers = (
        (name, _number(value, counts=name in _COUNTERS)) for name, value in zip(_FIELDS, values or (), strict=False)
    )
    return {name: number for name, number in numbers if number is not None}


def _number(value: Any, *, counts: bool) -> int | None:
    """Return a field's number; a counter of 32 bits says nothing, since bytes would fill it several times a second."""
    member = _LONG.get(value.valueType) or (None if counts else _SHORT.get(value.valueType))
    is_known = value.nvmlReturn == pynvml.NVML_SUCCESS and member is not None
    return int(getattr(value.value, member)) if is_known and member else None
