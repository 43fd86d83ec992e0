"""/livez, /readyz and /metrics on a thread of their own; nothing here waits for NVML or the API server."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Mapping
from threading import Event, Thread, Timer
from typing import Final

from extender.kit.visits import ROUND_SECONDS, Page, Visits

METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_VISIT_SECONDS = 5.0
"""A caller is let go after this, whatever it does."""
_METRICS_SECONDS = 1.0
"""A page of metrics serves everybody for so long: to make one takes the interpreter from those who serve the kubelet."""
_BACKLOG = 1024

_TOLD_SECONDS = 2.0
"""After a probe the kubelet has told the cluster of its answer."""


def announced(check: Callable[[], bool], tell: Callable[[], None]) -> Callable[[], bool]:
    """Return the check; `tell` is called after each of its changes to yes, when the cluster knows of it."""
    before = False

    def answer() -> bool:
        nonlocal before
        now = check()
        if now and not before:
            timer = Timer(_TOLD_SECONDS, tell)
            timer.daemon = True
            timer.start()
        before = now
        return now

    return answer


class Probes:
    """Serves until `close`; a port of 0 takes a free one, and `::` is all of IPv4 and IPv6."""

    def __init__(
        self, host: str, port: int, checks: Mapping[str, Callable[[], bool]], metrics: Callable[[], bytes]
    ) -> None:
        self._checks = checks
        self._metrics = metrics
        self._exposition: tuple[float, bytes] | None = None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
        self.port: int = self._socket.getsockname()[1]
        self._closing = Event()
        self._waking, self._woken = socket.socketpair()
        self._thread = Thread(target=self._serve, name="probes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._closing.set()
        self._waking.close()
        self._thread.join()

    def _serve(self) -> None:
        visits = Visits(self._socket, self._page, _VISIT_SECONDS)
        knocks = select.poll()
        with self._socket, self._woken:
            for listening in (self._socket, self._woken):
                knocks.register(listening, select.POLLIN)
            while not self._closing.wait(ROUND_SECONDS):
                if not visits:  # a clock that ticks for nobody would cost more than the probes themselves
                    knocks.poll()
                visits.serve_round(time.monotonic())
            visits.close()

    def _page(self, path: str, _query: str) -> Page:
        if path == "/metrics":
            return Page(200, self._recent_metrics(), METRICS)
        check = self._checks.get(path)
        if check is None:
            return Page(404, b"not found\n")
        return Page(200, b"ok\n") if check() else Page(503, b"not yet\n")

    def _recent_metrics(self) -> bytes:
        now = time.monotonic()
        if self._exposition is None or now - self._exposition[0] >= _METRICS_SECONDS:
            self._exposition = now, self._metrics()
        return self._exposition[1]
