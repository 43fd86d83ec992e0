"""/livez, /readyz and /metrics: whether to restart us, whether to send calls, and what we count.

No probe asks the API server: an outage there must not restart us, and what we know is in memory. As in Kubernetes' own
components, `?verbose` lists every check; `/healthz` is the old name of `/livez`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from extender.kit.visits import Page
from extender.service import Extender
from extender.telemetry.metrics import CONTENT_TYPE

PROBES: Final = ("/livez", "/healthz", "/readyz")
PATHS: Final = (*PROBES, "/metrics")


def routes() -> list[Route]:
    """Return the routes; the app that has them keeps the extender in `app.state.extender`."""
    return [Route(path, _endpoint) for path in PATHS]


def page(extender: Extender, path: str, query: str) -> Page:
    """Return one of the pages; in constant time, but for a new exposition once a second."""
    match path:
        case "/livez" | "/healthz":
            return _answer(query, "livez", extender.condition.life())
        case "/readyz":
            return _answer(query, "readyz", extender.condition.readiness())
        case "/metrics":
            return Page(200, extender.exposition(), CONTENT_TYPE)
        case _:
            return Page(404, b"not found\n")


async def _endpoint(request: Request) -> Response:
    answer = page(request.app.state.extender, request.url.path, request.url.query)
    return Response(answer.body, answer.status, headers={"Content-Type": answer.content_type})


def _answer(query: str, probe: str, checks: Mapping[str, str | None]) -> Page:
    """Say 200 when no check has anything to complain of, else 503 and what."""
    well = not any(checks.values())
    if well and "verbose" not in parse_qs(query, keep_blank_values=True):
        return Page(200, b"ok")
    lines = [f"[-]{name} failed: {complaint}" if complaint else f"[+]{name} ok" for name, complaint in checks.items()]
    lines.append(f"{probe} check {'passed' if well else 'failed'}")
    return Page(200 if well else 503, ("\n".join(lines) + "\n").encode())
