"""/livez, /readyz and /metrics: whether to restart us, whether to send calls, and what we count.

No probe asks the API server: an outage there must not restart us, and what we know is in memory. As in Kubernetes' own
components, `?verbose` lists every check; `/healthz` is the old name of `/livez`.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from extender.metrics import CONTENT_TYPE
from extender.service import Extender


def routes() -> list[Route]:
    """Return the routes; the app that has them keeps the extender in `app.state.extender`."""
    return [
        Route("/livez", _livez),
        Route("/healthz", _livez),
        Route("/readyz", _readyz),
        Route("/metrics", _metrics),
    ]


async def _livez(request: Request) -> Response:
    return _answer(request, "livez", _extender(request).life())


async def _readyz(request: Request) -> Response:
    return _answer(request, "readyz", _extender(request).readiness())


async def _metrics(request: Request) -> Response:
    return Response(_extender(request).metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})


def _extender(request: Request) -> Extender:
    extender: Extender = request.app.state.extender
    return extender


def _answer(request: Request, probe: str, checks: Mapping[str, str | None]) -> Response:
    """Say 200 when no check has anything to complain of, else 503 and what."""
    well = not any(checks.values())
    if well and "verbose" not in request.query_params:
        return PlainTextResponse("ok")
    lines = [f"[-]{name} failed: {complaint}" if complaint else f"[+]{name} ok" for name, complaint in checks.items()]
    lines.append(f"{probe} check {'passed' if well else 'failed'}")
    return PlainTextResponse("\n".join(lines) + "\n", 200 if well else 503)
