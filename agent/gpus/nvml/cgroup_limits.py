"""Set and read memory limits through `nvidia-ml-py`.

Hard limits only: a soft one would be added to the cgroups above, and stay there when its own cgroup goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pynvml

from agent.gpus.facts import Answer, Known, Missing
from agent.gpus.memory_limits import CgroupLimit, GpuCgroup
from agent.gpus.nvml.answers import ask, mapped
from agent.gpus.nvml.reader import opened

_NO_LIMIT = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX


def set_limits(wanted: Mapping[GpuCgroup, int | None]) -> Mapping[GpuCgroup, Answer[int | None]]:
    """Set each hard limit, `None` for none, and return what is read back; raises `NvmlUnavailable`.

    r615 says "not supported" of a place without a limit, as of one that cannot have any. So what was cleared is not read
    back.
    """
    with opened():
        return {place: _set(place, hard_bytes) for place, hard_bytes in wanted.items()}


def read_limits(places: Collection[GpuCgroup]) -> Mapping[GpuCgroup, Answer[CgroupLimit]]:
    """Return what stands there now; raises `NvmlUnavailable`."""
    with opened():
        return {place: _read(place) for place in places}


def _set(place: GpuCgroup, hard_bytes: int | None) -> Answer[int | None]:
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t()
    limits.nameSpace = place.cgroup.encode()
    limits.softLimit, limits.hardLimit = 0, _NO_LIMIT if hard_bytes is None else hard_bytes
    done = _ask(pynvml.nvmlDeviceSetMemoryLimits_v1, place, limits)
    if isinstance(done, Missing) or hard_bytes is None:
        return mapped(done, lambda _: None)
    return mapped(_read(place), lambda standing: standing.hard_bytes)


def _read(place: GpuCgroup) -> Answer[CgroupLimit]:
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t()
    limits.nameSpace = place.cgroup.encode()
    return mapped(_ask(pynvml.nvmlDeviceGetMemoryLimits_v1, place, limits), lambda _: _standing(limits))


def _standing(limits: Any) -> CgroupLimit:
    return CgroupLimit(None if limits.hardLimit == _NO_LIMIT else limits.hardLimit, limits.currentUsed)


def _ask(function: Any, place: GpuCgroup, limits: Any) -> Answer[Any]:
    handle = ask(pynvml.nvmlDeviceGetHandleByUUID, place.gpu)
    return ask(function, handle.value, limits) if isinstance(handle, Known) else handle
