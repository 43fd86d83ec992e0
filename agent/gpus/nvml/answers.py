"""A call of NVML as an answer: a value, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pynvml

from agent.gpus.facts import Answer, Gap, Known, Missing

_CODES: dict[int, str] = {
    value: name.removeprefix("NVML_ERROR_")
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
}
_GAPS = {
    "NOT_SUPPORTED": Gap.UNSUPPORTED,
    "FUNCTION_NOT_FOUND": Gap.UNSUPPORTED,
    "ARGUMENT_VERSION_MISMATCH": Gap.UNSUPPORTED,
    "DEPRECATED": Gap.UNSUPPORTED,
    "GPU_IS_LOST": Gap.LOST,
    "RESET_REQUIRED": Gap.LOST,
}
_LONG = {pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG}

Field = int | tuple[int, int]
"""A field of NVML, or one of a link: field and link."""


def code_of(value: int) -> str:
    """Return NVML's name of an error, without its `NVML_ERROR_`; of one that is newer than this binding its number."""
    return _CODES.get(value, str(value))


def ask(function: Callable[..., Any], *arguments: object) -> Answer[Any]:
    """Call NVML; a failure is an answer, too."""
    try:
        return Known(function(*arguments))
    except pynvml.NVMLError as error:
        code = code_of(error.value)
        return Missing(_GAPS.get(code, Gap.FAILED), code)
    except UnicodeDecodeError:  # the binding decodes what it reads
        return Missing(Gap.FAILED, "UNREADABLE")


def fields(handle: Any, wanted: Sequence[Field]) -> dict[Field, Answer[int]]:
    """Return the values of fields, all from one call; each may be missing by itself."""
    answer = ask(pynvml.nvmlDeviceGetFieldValues, handle, [*wanted])
    if isinstance(answer, Missing):
        return dict.fromkeys(wanted, answer)
    return {field: _field(value) for field, value in zip(wanted, answer.value, strict=True)}


def mapped(answer: Answer[Any], into: Callable[[Any], Any]) -> Answer[Any]:
    """Return the answer with its value changed, if it has one."""
    return Known(into(answer.value)) if isinstance(answer, Known) else answer


def looked_up(answer: Answer[int], words: Mapping[int, Any]) -> Answer[Any]:
    """Return what a number stands for; one that nobody knows is newer than this binding."""
    if isinstance(answer, Known) and answer.value not in words:
        return Missing(Gap.UNSUPPORTED, str(answer.value))
    return mapped(answer, words.__getitem__)


def within(answer: Answer[int], low: int, high: int) -> Answer[int]:
    """Take a number that cannot be for not said: virtual machines answer 0 or all ones where they do not know."""
    if isinstance(answer, Known) and not low <= answer.value <= high:
        return Missing(Gap.UNSUPPORTED, "OUT_OF_RANGE")
    return answer


def _field(value: Any) -> Answer[int]:
    if value.nvmlReturn == pynvml.NVML_SUCCESS:
        return Known(value.value.ullVal if value.valueType in _LONG else value.value.uiVal)
    code = code_of(value.nvmlReturn)
    return Missing(_GAPS.get(code, Gap.UNSUPPORTED), code)
