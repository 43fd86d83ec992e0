"""/livez, /readyz and /metrics on a thread of their own; nothing here waits for NVML or the API server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread, Timer
from typing import Final

TEXT: Final = "text/plain; charset=utf-8"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_POLL_SECONDS = 0.1
"""How long `close` may take."""
_SECONDS = 5.0
"""A caller that sends nothing is let go after this."""

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
    """Serves until `close`; a port of 0 takes a free one."""

    def __init__(
        self, host: str, port: int, checks: Mapping[str, Callable[[], bool]], metrics: Callable[[], bytes]
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _SECONDS

            def do_GET(self) -> None:
                self._answer(*_respond(self.path.partition("?")[0], checks, metrics))

            def log_message(self, *_: object) -> None:
                """Say nothing: probes come every few seconds."""

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

            def server_bind(self) -> None:
                """Bind without HTTPServer's reverse look-up of the pod's address, which can hang where there is no DNS."""
                TCPServer.server_bind(self)
                self.server_name, self.server_port = host, int(self.server_address[1])

        self._server = Server((host, port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, args=(_POLL_SECONDS,), name="probes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _respond(
    path: str, checks: Mapping[str, Callable[[], bool]], metrics: Callable[[], bytes]
) -> tuple[int, str, bytes]:
    if path == "/metrics":
        return 200, METRICS, metrics()
    check = checks.get(path)
    if check is None:
        return 404, TEXT, b"not found\n"
    return (200, TEXT, b"ok\n") if check() else (503, TEXT, b"not yet\n")
