"""Read what is watched of a GPU over time: its errors, heat, and what the driver asks for.

All fields come from one call, and those of all links from another. Nothing here waits: `nvmlDeviceGetPcieThroughput`, which
measures for 20 ms, is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import pynvml

from agent.gpus.facts import Answer, Gap, Known, Missing, NvLink, Watched, value_of
from agent.gpus.nvml.answers import Field, ask, fields, looked_up, mapped, within
from agent.health.evidence import RecoveryAction

Key = TypeVar("Key")

_RECOVERY_ACTIONS = {int(action): action for action in RecoveryAction}
_SLOWED = pynvml.nvmlClocksThrottleReasonHwThermalSlowdown | pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown

_ACTION: Final = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_CORRECTED: Final = pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL
_REPLAYS: Final = pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER
_KINDS: Final = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}
_MEMORY_ERRORS: Final = {
    pynvml.NVML_FI_DEV_ECC_SBE_AGG_L1: ("corrected", "l1"),
    pynvml.NVML_FI_DEV_ECC_DBE_AGG_L1: ("uncorrected", "l1"),
    pynvml.NVML_FI_DEV_ECC_SBE_AGG_L2: ("corrected", "l2"),
    pynvml.NVML_FI_DEV_ECC_DBE_AGG_L2: ("uncorrected", "l2"),
    pynvml.NVML_FI_DEV_ECC_SBE_AGG_REG: ("corrected", "registers"),
    pynvml.NVML_FI_DEV_ECC_DBE_AGG_REG: ("uncorrected", "registers"),
    pynvml.NVML_FI_DEV_ECC_SBE_AGG_TEX: ("corrected", "texture"),
    pynvml.NVML_FI_DEV_ECC_DBE_AGG_TEX: ("uncorrected", "texture"),
    pynvml.NVML_FI_DEV_ECC_DBE_AGG_CBU: ("uncorrected", "cbu"),
}
"""From Ampere on, all but device memory is SRAM. SRAM and device memory have calls of their own: an H100 with driver 580 answers
none of these fields, nor those of device memory."""
_THROTTLED: Final = {
    pynvml.NVML_FI_DEV_PERF_POLICY_POWER: "power",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: "heat",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: "hardware_heat",
    pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: "power_brake",
}
_LINK_ERRORS: Final = {
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC: "crc",
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY: "replay",
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY: "recovery",
    pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS: "receive",
    pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS: "recovered",
    pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS: "unrecovered",
}
"""The first three up to Hopper, the others from Blackwell on."""
_PLAIN: Final = (_ACTION, _CORRECTED, _REPLAYS, *_MEMORY_ERRORS, *_THROTTLED)


def watched(handle: Any, nvlinks: Answer[tuple[NvLink, ...]]) -> Watched:
    """Return what is watched of the GPU with this handle."""
    values = fields(handle, _PLAIN)
    sram = ask(_sram, handle)
    return Watched(
        recovery_action=looked_up(values[_ACTION], _RECOVERY_ACTIONS),
        uncorrected_errors=ask(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_AGGREGATE_ECC,
        ),
        throttled=mapped(
            ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle), lambda reasons: bool(reasons & _SLOWED)
        ),
        energy_millijoules=ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        memory_errors=_told(
            {kind: values[field] for field, kind in _MEMORY_ERRORS.items()} | _of_dram(handle) | _of_sram(sram)
        ),
        corrected_errors=values[_CORRECTED],
        sram_exceeded=mapped(sram, lambda errors: bool(errors.bThresholdExceeded)),
        banks_without_spares=mapped(
            ask(pynvml.nvmlDeviceGetRowRemapperHistogram, handle), lambda banks: int(banks.none)
        ),
        nvlink_errors=_nvlink_errors(handle, value_of(nvlinks) or ()),
        pcie_replays=values[_REPLAYS],
        pcie_width=within(ask(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle), 1, 64),
        margin_celsius=ask(pynvml.nvmlDeviceGetMarginTemperature, handle),
        throttled_nanoseconds=_told({reason: values[field] for field, reason in _THROTTLED.items()}),
    )


def _of_dram(handle: Any) -> dict[tuple[str, str], Answer[int]]:
    where = pynvml.NVML_AGGREGATE_ECC, pynvml.NVML_MEMORY_LOCATION_DRAM
    return {
        (name, "dram"): ask(pynvml.nvmlDeviceGetMemoryErrorCounter, handle, kind, *where)
        for name, kind in _KINDS.items()
    }


def _sram(handle: Any) -> Any:
    errors = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, pynvml.byref(errors))
    return errors


def _of_sram(errors: Answer[Any]) -> dict[tuple[str, str], Answer[int]]:
    return {
        ("corrected", "sram"): mapped(errors, lambda status: status.aggregateCor),
        ("uncorrected", "sram"): mapped(errors, lambda status: status.aggregateUncParity + status.aggregateUncSecDed),
    }


def _nvlink_errors(handle: Any, links: tuple[NvLink, ...]) -> Answer[Mapping[str, int]]:
    if not links:
        return Missing(Gap.UNSUPPORTED, "NO_LINKS")
    requests: list[Field] = [(field, link.number) for field in _LINK_ERRORS for link in links]
    values = fields(handle, requests)
    sums: dict[str, Answer[int]] = {}
    for field, kind in _LINK_ERRORS.items():
        counts = [answer.value for link in links if isinstance(answer := values[field, link.number], Known)]
        sums[kind] = Known(sum(counts)) if counts else values[field, links[0].number]
    return _told(sums)


def _told(answers: Mapping[Key, Answer[int]]) -> Answer[Mapping[Key, int]]:
    """Return what there is of several answers; where there is nothing, why the first one is missing."""
    values_by_key = {key: answer.value for key, answer in answers.items() if isinstance(answer, Known)}
    if values_by_key:
        return Known(values_by_key)
    return next(answer for answer in answers.values() if isinstance(answer, Missing))
