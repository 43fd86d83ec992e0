"""The view on its own port: the pages for people who are not operators. It serves GET and HEAD, and nothing that writes.

Everything that strangers choose is bounded: connections, requests a second, the length of a query. A refusal is sent after a
pause, so that a crowd of them costs little. `extender.features.view` decides who sees what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from extender.features.view.feature import View
from extender.features.view.reviews import ReviewsUnavailable, TooManyReviews, Unauthenticated
from extender.kit.bounded import Bounded
from extender.kit.rate import Rate
from extender.service import Extender
from extender.web import assets
from extender.web.hosts import Hosts
from extender.web.pages import SiteLinks
from extender.web.queries import MAX_QUERY_CHARACTERS
from extender.web.site import HEADERS, PAGES, PICTURE, PICTURE_PATH, Denied, Reader, Site

MAX_CONNECTIONS: Final = 256
REQUESTS_PER_SECOND: Final = 100.0
READER_REQUESTS_PER_SECOND: Final = 20.0
"""Of one user, so that nobody uses up what all may ask."""
READERS: Final = 2_000
"""Whose requests are counted."""
STRANGER_REQUESTS_PER_SECOND: Final = 20.0
"""With tokens that were never valid, and without one; a budget of their own, so that readers go on while they come."""
MAX_PATH_CHARACTERS: Final = 1024
REFUSED_AFTER_SECONDS: Final = 0.2
_HEADERS: Final = {
    **HEADERS,
    "Cache-Control": "private, no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Vary": "Authorization",
}
_METHODS: Final = ("GET", "HEAD")


class ViewPort:
    """The application of the view of one extender."""

    def __init__(self, view: View, extender: Extender) -> None:
        self._view = view
        settings = view.settings
        site = Site(
            gate=self._let_in,
            links=SiteLinks(has_json=False, grafana=settings.grafana),
            headers=_HEADERS,
            pages={**PAGES, PICTURE_PATH: PICTURE},
        )
        routes = [*site.routes(), *assets.routes()]
        self._app = Starlette(routes=routes, exception_handlers={404: _no_such_page})
        self._app.state.extender = extender
        self._hosts = Hosts((settings.host, *settings.allowed_hosts))
        self._rate = Rate(REQUESTS_PER_SECOND, int(2 * REQUESTS_PER_SECOND))
        self._strangers_rate = Rate(STRANGER_REQUESTS_PER_SECOND, int(2 * STRANGER_REQUESTS_PER_SECOND))
        self._rate_of = Bounded[str, Rate](READERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; whatever is refused is refused after a pause."""
        if scope["type"] != "http":
            return

        async def send_slowly(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                await asyncio.sleep(REFUSED_AFTER_SECONDS)
            await send(message)

        answer = self._refusal(scope) or self._app
        await answer(scope, receive, send_slowly)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        """Return why a request is not looked at, `None` where it is."""
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if scope["method"] not in _METHODS:
            return _refused(405, "this port serves GET and HEAD only", {"Allow": ", ".join(_METHODS)})
        if len(hosts) != 1 or not self._hosts.are_ours(hosts[0]):
            return _refused(421, "this host name is not ours: list it in view.allowedHosts")
        if len(scope["path"]) > MAX_PATH_CHARACTERS or len(scope["query_string"]) > MAX_QUERY_CHARACTERS:
            return _refused(
                414, f"more than {MAX_PATH_CHARACTERS} characters of path, or {MAX_QUERY_CHARACTERS} of query"
            )
        if not self._may_ask(scope, asyncio.get_running_loop().time()):
            return _refused(429, "too many requests: try again in a moment", {"Retry-After": "1"})
        return None

    def _may_ask(self, scope: Scope, now: float) -> bool:
        if not self._view.asks_for_tokens:
            return self._rate.take(now)
        reader = self._view.reader_of(_bearer(scope["headers"]))
        if reader is None:
            return self._strangers_rate.take(now)
        rate = self._rate_of.get(reader) or Rate(READER_REQUESTS_PER_SECOND, int(2 * READER_REQUESTS_PER_SECOND))
        self._rate_of.put(reader, rate)
        return rate.take(now) and self._rate.take(now)

    async def _let_in(self, request: Request, extender: Extender, namespace: str) -> Reader:
        try:
            token = _token(request) if self._view.asks_for_tokens else ""
            access = await self._view.access(token, extender.state.indexes.use.pods, namespace)
        except Unauthenticated as error:
            raise Denied(401, str(error), {"WWW-Authenticate": 'Bearer realm="gputopo"'}) from error
        except TooManyReviews as error:
            raise Denied(429, str(error), {"Retry-After": "1"}) from error
        except ReviewsUnavailable as error:
            raise Denied(503, "the API server cannot be asked who you are and what you may see") from error
        return Reader(access.sight, partial(self._view.events_of, access.viewer), self._view.samples_of)


def _token(request: Request) -> str:
    """Return the bearer token; raises `Unauthenticated` where there is none, or more than one."""
    token = _bearer(request.headers.raw)
    if not token:
        raise Unauthenticated("send `Authorization: Bearer TOKEN`, with a token of this cluster")
    return token


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the bearer token of the only Authorization header; empty where there is none, or more than one header."""
    given = [value for name, value in headers if name == b"authorization"]
    scheme, _, token = given[0].decode("latin-1").partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _no_such_page(request: Request, error: Exception) -> JSONResponse:
    return _refused(404, "there is no such page")


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": why}, status, {**_HEADERS, **(headers or {})})
