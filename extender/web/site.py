"""The pages over HTTP: what was asked, who may look now, and what the browser is told to allow.

They are served on the verbs' port, which is not for everybody; see `listen` in the configuration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import NOT_LISTED
from extender.inspect import inspection
from extender.inspect.places import node_names_in, places
from extender.inspect.waiting import waiting_pods
from extender.kit.turns import in_turns, listed
from extender.service import Extender, now
from extender.web import pages, paging
from extender.web.concurrency import Crowded
from extender.web.curves import Curve, curves
from extender.web.remembered import SECONDS, Remembered, RenderedPage
from topology.request.domains import Level, Location

SHOWN: Final = 50
"""Nodes, and placed and waiting pods, on the front page; decisions on a page of theirs."""
_DIGITS: Final = 16
"""No decision's number has so many."""
_PIECES: Final = 100
"""Of a page, each a few characters, between two chances for everybody else."""
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; object-src 'self'; frame-src 'self'; "
        "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_Make = Callable[[Extender, Request], Awaitable[RenderedPage]]


def routes() -> list[Route]:
    """Return the pages; the app that has them keeps the extender in `app.state.extender`."""
    remembered = Remembered()
    pages_by_path: dict[str, _Make] = {
        "/": _overview,
        "/v1/inspect/": _overview,
        "/nodes/{name}": _node,
        "/pods/{namespace}/{name}": _pod,
        "/decisions": _decisions,
        "/fragmentation": _fragmentation,
    }
    return [Route(path, _endpoint(make, remembered), methods=["GET"]) for path, make in pages_by_path.items()]


def _endpoint(make: _Make, remembered: Remembered) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        extender: Extender = request.app.state.extender
        if not extender.state.synced:
            return JSONResponse({"detail": NOT_LISTED}, 503)
        asked = f"{request.url.path}?{request.url.query}"
        try:
            page = await remembered.page(asked, lambda: _made(make, extender, request))
        except Crowded as refusal:
            return PlainTextResponse(f"{refusal}\n", 429, {"Retry-After": f"{SECONDS:.0f}"})
        headers = {**_HEADERS, "ETag": page.tag}
        if page.status == 200 and request.headers.get("if-none-match") == page.tag:
            return Response(status_code=304, headers=headers)
        return Response(page.text, page.status, headers, "text/html")

    return endpoint


async def _made(make: _Make, extender: Extender, request: Request) -> RenderedPage:
    """Make a page, the first one of all once the templates are compiled: others have the event loop meanwhile."""
    await asyncio.to_thread(pages.compile_templates)
    return await make(extender, request)


async def _overview(extender: Extender, request: Request) -> RenderedPage:
    """Show everything at a glance, or a block, a rack or an NVLink domain of it; others have their turns between the steps."""
    query, state = request.query_params, extender.state
    within = Location(*(query.get(level.value) or None for level in Level))
    asked = pages.NodeSelection(within, query.get("q", ""))
    figures, below = extender.figures(), await in_turns(places(state, within))
    names = list(islice(node_names_in(state, within, asked.containing, query.get("after", "")), SHOWN + 1))
    nodes = await listed(inspection.nodes(state, names[:SHOWN], now()))
    following = names[SHOWN - 1] if len(names) > SHOWN else None
    placed = await _first(extender, lambda pod: pod.key, lambda pod: pod.node is not None)
    waiting = await _first(extender, _oldest, lambda pod: pod.node is None and pod.uid not in state.indexes.stand_ins)
    moment = now()
    return await _page(
        pages.overview(
            figures,
            below,
            nodes,
            inspection.pod_infos(state, placed),
            waiting_pods(state, waiting, moment),
            asked=asked,
            following=following,
        )
    )


async def _node(extender: Extender, request: Request) -> RenderedPage:
    name = request.path_params["name"]
    detail = inspection.node(extender.state, name, now())
    if detail is None:
        return await _page(pages.missing_page(f"There is no node {name}."), 404)
    placed = inspection.pods_on(extender.state, name)
    return await _page(pages.node_page(detail, placed, request.query_params.get("pod", "")))


async def _pod(extender: Extender, request: Request) -> RenderedPage:
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    explanation = inspection.explain(extender.state, namespace, name, now())
    if explanation is None:
        return await _page(pages.missing_page(f"No pod {namespace}/{name} asks for GPUs."), 404)
    return await _page(pages.pod_page(explanation, extender.features.notes(namespace, name)))


async def _decisions(extender: Extender, request: Request) -> RenderedPage:
    asked = request.query_params.get("after", "")
    after = int(asked) if asked.isdecimal() and len(asked) < _DIGITS else None
    return await _page(pages.decisions_page(extender.history.decisions.page(SHOWN, after)))


async def _fragmentation(extender: Extender, request: Request) -> RenderedPage:
    room, drawn = extender.history.room.over_time(), list[Curve]()
    for curve in curves(room):
        drawn.append(curve)
        await asyncio.sleep(0)
    return await _page(pages.fragmentation_page(room.times, drawn))


async def _page(pieces: Iterable[str], status: int = 200) -> RenderedPage:
    text = list[str]()
    for piece in pieces:
        text.append(piece)
        if len(text) % _PIECES == 0:
            await asyncio.sleep(0)
    return RenderedPage("".join(text).encode(), status)


def _oldest(pod: GpuPod) -> tuple[str, tuple[str, str]]:
    return pod.pod.metadata.creation_timestamp or "", pod.key


async def _first(extender: Extender, key: Callable[[GpuPod], Any], where: Callable[[GpuPod], bool]) -> list[GpuPod]:
    """Return the first pods of those that have not ended and that `where` admits."""
    return await paging.first(SHOWN, extender.state.pods, key, lambda pod: not pod.stopped and where(pod))
