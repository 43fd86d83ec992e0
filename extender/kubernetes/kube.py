"""The Kubernetes API over HTTP: executes intents, reads list pages and watch streams.

With `extender.kubernetes.login` the only module that knows `kubernetes` (who we are and whom we trust), and the only one that
knows `aiohttp` (how bytes travel). It decides nothing: a time-out is `NoAnswer`, never a guess, and nothing is sent twice unless
the server said that it did nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException
from multidict import MultiDict
from yarl import URL

from extender.binding.intents import Done, Intent, ListPods, NoAnswer, Reply
from extender.cluster.objects.kinds import Pod
from extender.kit import traces
from extender.kubernetes.account import Headers
from extender.kubernetes.connections import Connections, HttpResponse, Server
from extender.kubernetes.documents import (
    HEAD_BYTES,
    BrokenStream,
    Expired,
    Overlong,
    Text,
    decoder,
    name_listed,
    read_page,
)
from extender.kubernetes.login import Login, of_kubeconfig, of_service_account
from extender.kubernetes.reflector import Unavailable, list_objects
from extender.kubernetes.rest import Flow, Request, to_reply, to_request, words_of

MAX_OBJECT_BYTES: Final = 12 << 20
"""Larger than the JSON of any object: etcd refuses 1.5 MiB, and one byte may become eight, as each `<` becomes six."""
MAX_PAGE_BYTES: Final = 16 << 20
"""For one object of that size, and for as many of the usual ones as make a page worth its while."""
TRUST_SECONDS: Final = 10.0
"""Between looks at the files of the server's CA and of our certificate; one that fails looks at once."""
MOST_SPREAD: Final = 1.5
"""The last caller waits so many times as long as a busy server requests, so that not all return at the same moment."""
MAX_BUSY_SECONDS: Final = 60.0
"""That a server is left alone, however long it asks for: a webhook may answer 429 too, for one pod of many."""
_USER_AGENT: Final = "gputopo-extender"
_LIST_SECONDS: Final = 60.0
_decode_pod = decoder(Pod)
_FAILURES = (aiohttp.ClientError, ConfigException, OSError, TimeoutError, ValueError)
"""A `ValueError` is what libraries raise for bytes of servers, proxies and files that they cannot take."""


class KubeApi:
    """One identity at one API server, for as long as the context is open."""

    def __init__(
        self,
        login: Login,
        *,
        connections: int = 32,
        request_timeout_seconds: float = 10.0,
        trust_seconds: float = TRUST_SECONDS,
        random: Random | None = None,
    ) -> None:
        self._login = login
        self._connections_at_most = connections
        self._request_timeout_seconds = request_timeout_seconds
        self._trust_seconds = trust_seconds
        self._random = random or Random()  # noqa: S311 - no secret
        self._impersonation: Headers = ()
        self._not_before: dict[Flow, tuple[float, str]] = {}
        """Until when a server is left alone with such requests, and what it said."""
        self._trusted: tuple[bytes, ssl.SSLContext] | None = None
        """What the files said when they were last of use, as a digest and as what connections are made with."""
        self._look_at = 0.0

    @classmethod
    def from_kubeconfig(cls, file: Path | Sequence[Path] | None, context: str | None = None, **settings: Any) -> Self:
        """Be whom the file or files say; without any, the service account of the pod that we run in."""
        paths = [file] if isinstance(file, Path) else file
        return cls(of_service_account if not paths else partial(of_kubeconfig, paths, context), **settings)

    async def __aenter__(self) -> Self:
        """Read the credentials; raises `Unavailable` when there are none."""
        try:
            await self._renew()
        except _FAILURES as error:
            raise Unavailable(f"no credentials: {error}") from error
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections_at_most),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._request_timeout_seconds),
            headers={"User-Agent": _USER_AGENT},
        )
        self._connections = Connections(self._connections_at_most, MAX_OBJECT_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connections.close()
        await self._session.close()

    async def execute(self, intent: Intent, timeout_seconds: float) -> Reply:
        """Do what an intent says, within `timeout_seconds`; never raises."""
        if isinstance(intent, ListPods):
            return await self._list(intent, timeout_seconds)
        try:
            status, body = await self._receive(to_request(intent), timeout_seconds)
        except Unavailable as error:
            return NoAnswer(str(error))
        return to_reply(intent, status, body)

    async def _list(self, intent: ListPods, timeout_seconds: float) -> Reply:
        source = self.resource("/api/v1/pods", field_selector=f"spec.nodeName={intent.node}")
        try:
            async with asyncio.timeout(timeout_seconds):
                listed = await list_objects(source, _decode_pod)
        except Expired:
            return NoAnswer("the list took too long to go on")
        except (BrokenStream, Unavailable, TimeoutError) as error:
            return NoAnswer(_in_words(error))
        if listed.unread:  # half of the pods would be as good as none
            return NoAnswer(f"{listed.unread[0].metadata.name} is among them, which cannot be read")
        return Done(tuple(listed.objects))

    async def send(self, request: Request) -> tuple[int, bytes]:
        """Send anything else; returns status and body, raises `Unavailable`."""
        return await self._receive(request, self._request_timeout_seconds)

    def resource(self, path: str, **limits: Any) -> Resource:
        """Return a source of list pages and watch streams, e.g. of `/api/v1/nodes`."""
        return Resource(self, path, **limits)

    async def headers(self) -> Headers:
        """Return the credentials to send along; the token of a service account is read again every minute."""
        impersonation = self._impersonation  # of the same login as the token
        token = ((await self._configuration.auth_settings()).get("BearerToken", {}).get("value") or "").strip()
        if not (token.isascii() and token.isprintable()):
            raise ConfigException("the token is none that can be sent")
        return ((("Authorization", token),) if token else ()) + impersonation

    async def _receive(self, request: Request, timeout_seconds: float) -> tuple[int, bytes]:
        """Send until somebody answers, as a part of the trace of the pod that it is for, if it is for one."""
        with traces.request(request.method, request.path) as answered:
            status, body = await self._persist(request, timeout_seconds)
            answered(status)
            return status, body

    async def _persist(self, request: Request, timeout_seconds: float) -> tuple[int, bytes]:
        """Send until somebody answers; a busy server is waited for as it says, if the time allows it."""
        clock = asyncio.get_running_loop()
        deadline = clock.time() + timeout_seconds
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._exchange(request)
            except Unavailable as busy:
                if clock.time() + busy.retry_after_seconds >= deadline:
                    raise
                await asyncio.sleep(busy.retry_after_seconds)
            except _FAILURES as error:
                raise Unavailable(_in_words(error)) from error

    async def _exchange(self, request: Request) -> tuple[int, bytes]:
        """Send once, as with `open`, and read the whole answer."""
        if self._configuration.proxy:
            async with self.open(request) as response:
                body = await _read(response, MAX_OBJECT_BYTES)
                if isinstance(body, Overlong):
                    raise aiohttp.ClientPayloadError(f"an answer of more than {body.max_bytes} bytes")
                return response.status, bytes(body)
        self._check_flow(request)
        for attempt in range(2):
            try:
                answer = await self._ask(request)
            except ssl.SSLError:
                if attempt or not await self._renew():
                    raise
                continue
            retry_after = answer.headers.get(b"retry-after", b"").decode("latin-1")
            if await self._stands(request, attempt, answer.status, retry_after, answer.body):
                return answer.status, answer.body
        raise AssertionError("the second answer stands")

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and give the answer to read; a 401 is met once with fresh credentials.

        So is a server whose certificate cannot be checked, to whom nothing was sent. Raises `Unavailable` while the
        server is busy (429) with requests of that flow, until the time that it named. Raises one of `_FAILURES` when
        nobody answers.
        """
        self._check_flow(request)
        for attempt in range(2):
            try:
                started = await self._start(request)
            except aiohttp.ClientSSLError:
                if attempt or not await self._renew():
                    raise
                continue
            async with started as response:
                if await self._stands(request, attempt, response.status, response.headers.get("Retry-After", "")):
                    yield response
                    return

    def _check_flow(self, request: Request) -> None:
        until, words = self._not_before.get(request.flow, (0.0, ""))
        pause = until - asyncio.get_running_loop().time()
        if pause > 0:
            raise self._busy(pause, words)

    async def _stands(
        self, request: Request, attempt: int, status: int, retry_after: str, body: bytes | bytearray = b""
    ) -> bool:
        """Whether an answer is one, and not a first 401; raises `Unavailable` for a 429."""
        match status:
            case 401 if attempt == 0:
                await self._renew()
                return False
            case 429 if not request.may_be_too_many:
                pause = max(1.0, _seconds(retry_after))
                words = words_of(status, bytes(body))
                self._not_before[request.flow] = asyncio.get_running_loop().time() + pause, words
                raise self._busy(pause, words)
        return True

    def _busy(self, seconds: float, words: str) -> Unavailable:
        wait = seconds * self._random.uniform(1.0, MOST_SPREAD)
        return Unavailable(f"busy for {seconds:.0f} s: {words}", retry_after_seconds=wait)

    async def _start(self, request: Request) -> aiohttp.ClientResponse:
        return await self._session.request(
            request.method,
            URL(self._configuration.host + request.path, encoded=True),
            data=request.body,
            headers=await self._headers_of(request),
            proxy=self._configuration.proxy,
            ssl=self._tls(),
            server_hostname=self._configuration.tls_server_name,
            allow_redirects=False,
        )

    async def _ask(self, request: Request) -> HttpResponse:
        headers = await self._headers_of(request)
        headers["User-Agent"] = _USER_AGENT
        return await self._connections.ask(self._server(), request.method, request.path, headers, request.body)

    async def _headers_of(self, request: Request) -> MultiDict[str]:
        return MultiDict((("Accept", request.accept), ("Content-Type", request.content_type), *await self.headers()))

    def _server(self) -> Server:
        url, tls = self._configuration.host, self._tls()
        return Server(url, tls if url.startswith("https:") else None, self._configuration.tls_server_name)

    def _tls(self) -> ssl.SSLContext:
        """Return what connections are made with; files that were replaced count from the next look on."""
        now = asyncio.get_running_loop().time()
        if now >= self._look_at:
            self._look_at = now + self._trust_seconds
            with suppress(OSError, ConfigException):  # half written, perhaps: what we have serves until it does not
                self._trust(self._configuration)
        assert self._trusted is not None
        return self._trusted[1]

    async def _renew(self) -> bool:
        """Read the credentials as they are now; returns whether we believe or show something else."""
        credentials = await self._login()
        is_new = self._trust(credentials.configuration)
        self._configuration, self._impersonation = credentials.configuration, credentials.impersonation
        return is_new

    def _trust(self, configuration: Configuration) -> bool:
        digest = _digest(configuration)
        if self._trusted is not None and self._trusted[0] == digest:
            return False
        try:
            self._trusted = digest, RESTClientObject(configuration).ssl_context
        except (TypeError, ValueError) as error:  # of an `ssl` that is given no PEM
            raise ConfigException(f"no certificates: {error}") from error
        return True


class Resource:
    """All objects of one kind, as `extender.kubernetes.reflector.Source` wants them."""

    def __init__(
        self,
        api: KubeApi,
        path: str,
        *,
        field_selector: str = "",
        page_size: int = 500,
        stream_seconds: float = 50.0,
        max_page_bytes: int = MAX_PAGE_BYTES,
    ) -> None:
        self._api = api
        self._path = path
        self._selection = {"fieldSelector": field_selector} if field_selector else {}
        self._page_size = self._limit = page_size
        self._stream_seconds = stream_seconds
        self._max_page_bytes = max_page_bytes

    async def list_page(self, continuation: str | None) -> Text | Overlong:
        """Read one page of a consistent list; where that is too large, with a quarter of the objects, down to one.

        Each try costs as much as a page may have, so they are few; where pages are small again, the next one may be larger.
        """
        query = self._selection | ({"continue": continuation} if continuation else {})
        while True:
            page = await self._get_list({"limit": str(self._limit)} | query)
            if isinstance(page, Overlong):
                if self._limit == 1:
                    return page
                self._limit = max(1, self._limit // 4)
                continue
            if len(page) <= self._max_page_bytes // 4:
                self._limit = min(self._page_size, 2 * self._limit)
            return page

    async def latest_version(self) -> str:
        """Return the version that a consistent read is of, at the cost of one object."""
        page = await self._get_list({"limit": "1"} | self._selection)
        metadata = name_listed(page)[0] if isinstance(page, Overlong) else read_page(page).metadata
        return metadata.resource_version

    async def _get_list(self, query: dict[str, str]) -> Text | Overlong:
        try:
            async with asyncio.timeout(_LIST_SECONDS), self._api.open(self._get(query)) as response:
                _check(response)
                return await _read(response, self._max_page_bytes)
        except _FAILURES as error:
            raise Unavailable(_in_words(error)) from error

    async def watch(self, resource_version: str) -> AsyncGenerator[bytes]:
        """Stream what happened after `resource_version`, an empty chunk first."""
        query = self._selection | {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": f"{self._stream_seconds:.0f}",
        }
        try:
            async with self._api.open(self._get(query)) as response:
                _check(response)
                yield b""
                async for chunk in response.content.iter_any():
                    yield chunk
        except _FAILURES as error:
            raise Unavailable(_in_words(error)) from error

    def _get(self, query: dict[str, str]) -> Request:
        return Request("GET", f"{self._path}?{urlencode(query)}")


def _digest(configuration: Configuration) -> bytes:
    """Tell what connections are made with from anything else that the files may say."""
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    read = (hashlib.sha256(Path(file).read_bytes()).digest() if file else b"-" for file in files)
    return b"".join(read) + repr((configuration.ca_cert_data, configuration.verify_ssl)).encode()


def _check(response: aiohttp.ClientResponse) -> None:
    if response.status == 410:
        raise Expired
    if response.status != 200:
        raise Unavailable(
            f"HTTP {response.status}",
            denied=response.status in {401, 403},
            missing=response.status == 404,
            retry_after_seconds=_seconds(response.headers.get("Retry-After", "")),
        )


def _seconds(value: str) -> float:
    """Return what a `Retry-After` asks for, if anything."""
    return min(float(value), MAX_BUSY_SECONDS) if value.isascii() and value.isdigit() else 0.0


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytearray | Overlong:
    """Return the whole body, or the beginning of one that is too long; the rest of that is not waited for."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            response.close()
            return Overlong(bytes(body[:HEAD_BYTES]), max_bytes)
    return body


def _in_words(error: BaseException) -> str:
    cause = error.certificate_error if isinstance(error, aiohttp.ClientConnectorCertificateError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the API server's certificate cannot be verified: {cause.verify_message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port}: {error.strerror or error.os_error}"
    return str(error) or type(error).__name__
