"""A small asynchronous Kubernetes client: paths and JSON in, code and JSON out.

The simulated fleet, the demo and the contract suite use it; the product has its own. It works against the double
and against a real kube-apiserver, whose kubeconfig may hold a bearer token and a CA.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import msgspec
import yaml

Json = dict[str, Any]
Item = TypeVar("Item")

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

_MAX_LINE_BYTES = 16 * 1024 * 1024


class RequestRefused(Exception):
    """The API answered a request with a failure `Status`."""

    def __init__(self, code: int, status: Json) -> None:
        super().__init__(f"{code} {status.get('reason')}: {status.get('message')}")
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """An HTTP status code and the JSON document that came with it."""

    code: int
    body: Json
    retry_after_seconds: int | None = None
    """What a busy server asked for."""

    def ok(self) -> Json:
        """Return the document, or raise `RequestRefused` unless the code is 2xx."""
        if self.code // 100 != 2:
            raise RequestRefused(self.code, self.body)
        return self.body


class ApiClient:
    """One user's connection to one API server, for as long as the context is open."""

    def __init__(self, url: str, *, token: str | None = None, ca: str | None = None) -> None:
        """Talk to `url`; `ca` is the PEM text of the certificates to trust."""
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = ssl.create_default_context(cadata=ca) if ca else True

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Self:
        """Read server, CA and token of the current context."""
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        ca = None
        if "certificate-authority-data" in cluster:
            ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        elif "certificate-authority" in cluster:
            ca = (path.parent / cluster["certificate-authority"]).read_text()
        return cls(cluster["server"], token=user.get("token"), ca=ca)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=64),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            read_bufsize=_MAX_LINE_BYTES,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str
    ) -> ClientResponse:
        """Send one request; `content_type` says which kind of patch a body is."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type}
        async with self._session.request(
            method, self._url + path, params=query, data=content, headers=headers
        ) as response:
            pause = response.headers.get("Retry-After")
            body = await response.read() if response.content_type == "application/json" else b"{}"
            return ClientResponse(response.status, msgspec.json.decode(body), int(pause) if pause else None)

    async def text(self, path: str) -> str:
        """Return what is no JSON, such as `/metrics`."""
        async with self._session.get(self._url + path) as response:
            return await response.text()

    async def watch(self, path: str, **query: str) -> AsyncGenerator[tuple[str, Json], None]:
        """Yield (type, object) as the server tells them, until it ends the stream; ERROR is an event like any other."""
        async with self._session.get(self._url + path, params={"watch": "true", **query}) as response:
            if response.status != 200:
                raise RequestRefused(response.status, msgspec.json.decode(await response.read()))
            try:
                async for line in response.content:
                    event = msgspec.json.decode(line)
                    yield event["type"], event["object"]
            finally:
                # A reader that leaves early is not polite: a TLS farewell would outlive the session.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()


def _named(entries: list[Json], name: str) -> Json:
    return next(entry for entry in entries if entry["name"] == name)


async def for_all(items: Iterable[Item], work: Callable[[Item], Awaitable[object]], at_once: int) -> None:
    """Do some work for all items, for so many at once; the first failure ends the others."""
    gate = asyncio.Semaphore(at_once)

    async def one(item: Item) -> None:
        async with gate:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))
