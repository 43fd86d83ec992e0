"""The extender as people run it: the verbs on one port, the probes on another, until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from extender.config.document import ExtenderConfiguration
from extender.config.listening import TlsSettings
from extender.features.registry import FEATURES
from extender.features.view.feature import View
from extender.kit import collector
from extender.kit.plain_structlog import structlog
from extender.kit.traces import Traces
from extender.service import Extender
from extender.web import health
from extender.web.app import application, connect
from extender.web.health_port import HealthPort
from extender.web.listener import Listener, bound, url_of
from extender.web.tls import Files, Identity
from extender.web.view_port import MAX_CONNECTIONS, ViewPort

log = structlog.get_logger(__name__)


async def serve(
    config: ExtenderConfiguration,
    stop: asyncio.Event,
    listening: Callable[[list[str]], None] = lambda _: None,
    traces: Traces | None = None,
) -> None:
    """Run until `stop` is set; `listening` is told the URLs, that of the verbs first.

    Raises `OSError` when a port cannot be had or a certificate not be used, and `Unavailable` without credentials. Raises
    an `ExceptionGroup` when a part of the extender has died: the rest must not go on without it.
    """
    identity = _identity(config.tls)
    with contextlib.ExitStack() as sockets:
        main = sockets.enter_context(bound(config.listen.host, config.listen.port))
        side = None
        if config.health.port is not None:
            side = sockets.enter_context(bound(config.health.host, config.health.port))
        async with connect(config) as api, Extender(config, api, FEATURES, traces=traces) as extender:
            app = application(config)
            app.state.extender = extender
            listeners = [Listener(app, main, config.limits.receive, identity.context if identity else None)]
            urls = [listeners[0].url]
            extender.begin_checks()
            background = [extender.failure(), _settle(extender)]
            if side is not None:
                urls.append(url_of(side, "http"))
                background.append(HealthPort(partial(health.page, extender), side, config.limits.receive).serve())
            if (view := extender.features.get(View)) is not None:
                opened = sockets.enter_context(bound(view.settings.host, view.settings.port))
                port = ViewPort(view, extender)
                listeners.append(Listener(port, opened, config.limits.receive, max_connections=MAX_CONNECTIONS))
                urls.append(listeners[-1].url)
            log.info("listening", urls=" ".join(urls), config=config.digest)
            listening(urls)
            if identity is not None:
                background.append(identity.follow(config.tls.reload))
            await _run(listeners, background, stop)


async def _run(listeners: list[Listener], background: list[Coroutine[Any, Any, None]], stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        for listener in listeners:
            group.create_task(listener.serve())
        tasks = [group.create_task(work) for work in background]
        await stop.wait()
        log.info("stopping")
        for listener in listeners:
            listener.should_exit = True
        for task in tasks:
            task.cancel()


async def _settle(extender: Extender) -> None:
    """Keep the collector off what the first lists leave on the heap: a look through it costs seconds now, later milliseconds."""
    collector.put_off()
    try:
        await extender.synced()
    finally:
        collector.resume()
    collector.freeze()
    log.info("ready", nodes=len(extender.state.nodes), pods=len(extender.state.pods))


def _identity(tls: TlsSettings) -> Identity | None:
    if tls.cert_file is None or tls.key_file is None or tls.client_ca_file is None:
        return None
    return Identity(Files(tls.cert_file, tls.key_file, tls.client_ca_file))
