"""NVML with a limit of time: a call into a dead driver can hang for ever, and who waits for it would hang with it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Final, TypeVar

from agent.errors import NvmlUnavailable
from agent.gpus.facts import NvmlFacts, NvmlPort

T = TypeVar("T")

TIMED_OUT: Final = "TIMEOUT"
PATIENCE_SECONDS: Final = 25.0
"""A discovery takes seconds at most where NVML is held open; where it is not, the driver may take two for each GPU first."""


class PatientNvml:
    """Reads as `read` does, on threads of its own, never two at once; what hangs is left to itself."""

    def __init__(self, read: NvmlPort, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._read = read
        self._patience_seconds = patience_seconds
        self._reading: Future[NvmlFacts] | None = None

    def __call__(self) -> NvmlFacts:
        """Return the facts of now; raises `NvmlUnavailable`, and at once as long as an earlier call hangs."""
        hangs = self._reading is not None and not self._reading.done()
        if self._reading is None or not hangs:
            self._reading = aside(self._read)
        try:
            return self._reading.result(0 if hangs else self._patience_seconds)
        except TimeoutError:
            raise NvmlUnavailable(TIMED_OUT, "NVML hangs: a call into the driver does not return") from None


def aside(call: Callable[[], T]) -> Future[T]:
    """Call on a thread that nobody waits for when the process ends."""
    calling: Future[T] = Future()
    calling.set_running_or_notify_cancel()

    def run() -> None:
        try:
            calling.set_result(call())
        except BaseException as error:
            calling.set_exception(error)

    Thread(target=run, name="nvml", daemon=True).start()
    return calling
