"""Record what a driver's library answers through its Python binding, call by call, to compare another library with it."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml

from agent.gpus.facts import Known, value_of
from agent.gpus.nvml.activity_reader import read_activity
from agent.gpus.nvml.answers import code_of
from agent.gpus.nvml.reader import opened, read_nvml, read_processes
from agent.gpus.nvml.xid_events import follow_xids

_PROCESS_NAME = "nvmlSystemGetProcessName"
_TYPES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""Which member of a field's value NVML has filled, by its type."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REFERENCE = type(ctypes.byref(ctypes.c_int()))


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it was made: the function and its arguments, structs as they were before it."""

    function: str
    given: str
    """As JSON."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: NVML's name of the code, and the structs and buffers as they were after it."""

    code: str
    answer: Any


@dataclass(slots=True)
class Recording:
    """Call → its last reply; handles, UUIDs and PIDs by the order in which they came, since they name a machine."""

    replies: dict[Call, Reply] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def wrapped(self, name: str, function: Callable[..., int]) -> Callable[..., int]:
        """Return the function of the library with a memory."""

        def call(*arguments: Any) -> int:
            shown = [self._shown(each) for each in arguments]
            if name == _PROCESS_NAME:
                shown[0] = self._named("process", f"{shown[0]}")
            given = json.dumps(shown)
            code = function(*arguments)
            told = [self._shown(each) for each in arguments if isinstance(each, _REFERENCE | ctypes.Array)]
            self.replies[Call(name, given)] = Reply("SUCCESS" if code == 0 else code_of(code), told)
            return code

        return call

    def write(self, file: Path) -> None:
        """Write a line for each call."""
        lines = (
            json.dumps([call.function, json.loads(call.given), reply.code, reply.answer])
            for call, reply in self.replies.items()
        )
        file.write_text("[\n" + ",\n".join(lines) + "\n]\n")

    def _named(self, kind: str, what: str) -> str:
        return self._names.setdefault(what, f"{kind} {sum(name.startswith(kind) for name in self._names.values())}")

    def _shown(self, value: Any) -> Any:
        if isinstance(value, _REFERENCE):
            return self._shown(value._obj)  # type: ignore[attr-defined]
        if isinstance(value, ctypes._Pointer):
            address = ctypes.cast(value, ctypes.c_void_p).value
            return None if address is None else self._named("handle", f"at {address}")
        if isinstance(value, pynvml.c_nvmlFieldValue_t):
            return _field(value)
        if isinstance(value, ctypes.Structure):
            return dict(self._members(value))
        if isinstance(value, ctypes.Array):
            return self._text(value.value) if isinstance(value[:1], bytes) else _without_tail(map(self._shown, value))
        if isinstance(value, ctypes._SimpleCData):
            value = value.value
        return self._text(value) if isinstance(value, bytes) else value

    def _members(self, struct: ctypes.Structure) -> Iterator[tuple[str, Any]]:
        for name, *_ in struct._fields_:
            value = self._shown(getattr(struct, name))
            if value:
                yield name, self._named("process", f"{value}") if name == "pid" else value

    def _text(self, text: bytes) -> str:
        return _UUID.sub(lambda match: self._named("uuid", match[0]), text.decode(errors="replace"))


def _field(value: Any) -> dict[str, Any]:
    """Leave out when it was read, how long that took, and what is there where there is no value."""
    asked = {"field": value.fieldId, "scope": value.scopeId}
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        return {**asked, "code": code_of(value.nvmlReturn)}
    return {**asked, "type": value.valueType, "value": getattr(value.value, _TYPES[value.valueType])}


def _without_tail(values: Iterator[Any]) -> list[Any]:
    """Leave out what was never filled."""
    kept = list(values)
    while kept and not kept[-1]:
        kept.pop()
    return kept


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record all calls meanwhile."""
    recording, find = Recording(), pynvml._nvmlGetFunctionPointer

    def found(name: str) -> Callable[..., int]:
        try:
            return recording.wrapped(name, find(name))
        except pynvml.NVMLError as error:
            recording.replies[Call(name, "[]")] = Reply(code_of(error.value), [])
            raise

    pynvml._nvmlGetFunctionPointer = found
    try:
        yield recording
    finally:
        pynvml._nvmlGetFunctionPointer = find


def ask_all() -> Recording:
    """Record what the agent asks a driver at a look, a sample and a wait for critical errors; raises `NvmlUnavailable`."""
    with opened(), recorded() as recording:
        gpus = [answer.value for answer in read_nvml().gpus if isinstance(answer, Known)]
        read_processes([uuid for gpu in gpus if (uuid := value_of(gpu.uuid))])
        read_activity()
        following = follow_xids()
        try:
            next(following), next(following)
        finally:
            following.close()
    return recording


def read(file: Path) -> Mapping[Call, Reply]:
    """Return what a file holds that `Recording.write` wrote."""
    return {
        Call(function, json.dumps(given)): Reply(code, answer)
        for function, given, code, answer in json.loads(file.read_text())
    }
