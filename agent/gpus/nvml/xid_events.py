"""Critical errors (XIDs) as NVML tells them, for as long as it is held open."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pynvml

from agent.gpus.critical_errors import Coverage, CriticalError
from agent.gpus.facts import Known, Missing
from agent.gpus.nvml.answers import ask
from agent.gpus.nvml.reader import unavailable

_XID = pynvml.nvmlEventTypeXidCriticalError
_WAIT_MS = 250
"""Whoever wants NVML closed waits for so long."""


def follow_xids() -> Generator[Coverage | CriticalError | None, None, None]:
    """Yield of which GPUs errors are told, and then each as it happens, or `None` after a moment without any.

    NVML stays initialised until the generator is closed. A UUID is empty where NVML cannot say it any more.

    Raises:
        NvmlUnavailable: NVML does not work, has no events, or a GPU was lost while we waited.

    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise unavailable(error) from error
    try:
        yield from _follow()
    except pynvml.NVMLError as error:
        raise unavailable(error) from error
    finally:
        ask(pynvml.nvmlShutdown)


def _follow() -> Generator[Coverage | CriticalError | None, None, None]:
    events = pynvml.nvmlEventSetCreate()
    try:
        answers = [_register(index, events) for index in range(pynvml.nvmlDeviceGetCount())]
        yield Coverage(tuple(sorted({answer.code for answer in answers if isinstance(answer, Missing)})))
        while True:
            yield _next(events)
    finally:
        ask(pynvml.nvmlEventSetFree, events)


def _register(index: int, events: Any) -> Known[None] | Missing:
    handle = ask(pynvml.nvmlDeviceGetHandleByIndex, index)
    return ask(pynvml.nvmlDeviceRegisterEvents, handle.value, _XID, events) if isinstance(handle, Known) else handle


def _next(events: Any) -> CriticalError | None:
    try:
        event = pynvml.nvmlEventSetWait_v2(events, _WAIT_MS)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_TIMEOUT:
            return None
        raise
    if event.eventType != _XID:
        return None
    uuid = ask(pynvml.nvmlDeviceGetUUID, event.device)
    return CriticalError(uuid.value if isinstance(uuid, Known) else "", event.eventData)
