"""The FastAPI application: the scheduler's verbs, health, and what people may look at.

    uvicorn extender.web.app:create_app --factory

reads the file that `GPUTOPO_CONFIG` names; `gputopo-extender` does the same with flags, limits and a health port of its own.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.responses import JSONResponse
from starlette.types import Lifespan, Receive, Scope, Send

from extender.config.document import ExtenderConfiguration
from extender.features.configuration import load
from extender.features.registry import FEATURES
from extender.kit import logs
from extender.kubernetes.kube import KubeApi
from extender.service import Extender
from extender.web import assets, health, routes, views, what_if
from extender.web.hosts import Hosts
from extender.web.site import Site

_NOT_OURS: Final = "this host name is not ours: list it in listen.allowedHosts"


def create_app() -> FastAPI:
    """Return the application with an extender of its own, which lives as long as the application's lifespan."""
    file = os.environ.get("GPUTOPO_CONFIG")
    config = load(Path(file) if file else None, os.environ, {})
    logs.start(config.log.level, config.log.format)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with connect(config) as api, Extender(config, api, FEATURES) as app.state.extender:
            yield

    return application(config, lifespan)


class Application(FastAPI):
    """FastAPI for requests that name a host of ours."""

    hosts: Hosts | None = None
    """The names that pages answer to; `None`: to any."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "http" and not self._is_for_us(scope):
            await JSONResponse({"detail": _NOT_OURS}, 421)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def _is_for_us(self, scope: Scope) -> bool:
        """Whether the request names a host of ours; probes and verbs need not, nor does what no browser sends."""
        if self.hosts is None or scope["path"] in health.PROBES or scope["path"].startswith(f"{routes.PREFIX}/"):
            return True
        named = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        return all(map(self.hosts.are_ours, named))


def application(config: ExtenderConfiguration, lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    """Return the application for an extender that is, or will be, in `app.state.extender`."""
    app = Application(
        title="gputopo extender",
        version=version("gputopo"),
        description="Where GPUs are, who has them, and why a pod goes where it goes.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
    )
    app.hosts = None if config.tls.cert_file else Hosts((config.listen.host, *config.listen.allowed_hosts))
    app.router.routes[:0] = [*routes.routes(config.limits), *health.routes(), *what_if.routes()]
    app.include_router(views.router)
    app.router.routes.extend([*assets.routes(), *Site().routes()])
    return app


def connect(config: ExtenderConfiguration) -> KubeApi:
    """Return the connection that the configuration asks for."""
    kubernetes = config.kubernetes
    return KubeApi.from_kubeconfig(
        kubernetes.kubeconfig,
        kubernetes.context,
        connections=kubernetes.connections,
        request_timeout_seconds=kubernetes.request_timeout,
    )
