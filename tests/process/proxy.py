"""A replica's own way to the API server, on which things go wrong: requests and replies held, lost or refused, streams cut.

It passes on what arrives, remembers every call, and lets a `Fault` answer those that a rule is for. Faults are told in
`faults`; what a stream suffers is told to the streams.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import yaml
from aiohttp import web

from tests.extender.polling import until
from tests.process.calls import Call, Kind

_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
_HOP_BY_HOP = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server said; a watch that it agreed to goes on in `upstream`."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    upstream: aiohttp.ClientResponse | None = None


Forward = Callable[[], Awaitable[Reply]]
"""Send the call on, and return what came back."""
Fault = Callable[[Call, Forward], Awaitable[Reply | None]]
"""Answer a call in the server's place; `None` breaks the connection."""
Where = Kind | Callable[[Call], bool]


@dataclass(slots=True)
class Rule:
    """Which calls meet a fault, and how many of them did; it ends with its `with` block, or when told to."""

    where: Callable[[Call], bool]
    fault: Fault
    times: int
    """How many calls; those after that are none of its business."""
    met: list[Call] = field(default_factory=list)
    over: bool = False

    def concerns(self, call: Call) -> bool:
        """Whether this call is the next one to meet the fault."""
        return not self.over and len(self.met) < self.times and self.where(call)

    def end(self) -> None:
        """Let everything pass from now on."""
        self.over = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Proxy:
    """Listens on loopback for as long as the context is open."""

    def __init__(self, kubeconfig: Path) -> None:
        """Lead to the server of `kubeconfig`; who calls says who it is, so no credentials are needed."""
        self.calls: list[Call] = []
        self.answered: list[tuple[Call, int]] = []
        """What the server said to those that reached it, in that order."""
        self.streams: list[Stream] = []
        """Those that are open now, the oldest first."""
        self.told: dict[str, set[int]] = defaultdict(set)
        """Resource → the versions that its watches have passed on."""
        self._config = yaml.safe_load(kubeconfig.read_text())
        self._cluster = self._config["clusters"][0]["cluster"]
        self._rules: list[Rule] = []
        self._flows: dict[str, asyncio.Event] = defaultdict(_open)
        self._runner = web.ServerRunner(web.Server(self._serve, access_log=None), shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        ca = self._cluster.get("certificate-authority")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context(cafile=ca) if ca else True),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            read_bufsize=1 << 20,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.forgive()
        for stream in tuple(self.streams):
            stream.cut()
        await self._runner.cleanup()
        await self._session.close()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads here, for the same user, and return where it is."""
        host, port = self._runner.addresses[0][:2]
        cluster = {**self._config["clusters"][0], "cluster": {"server": f"http://{host}:{port}"}}
        path.write_text(yaml.safe_dump({**self._config, "clusters": [cluster]}))
        return path

    def meet(self, where: Where, fault: Fault, *, times: int = 1 << 30) -> Rule:
        """Let the next `times` calls of that kind meet `fault`; of several rules the oldest that is not over counts."""
        rule = Rule(where if not isinstance(where, Kind) else lambda call: call.kind is where, fault, times)
        self._rules.append(rule)
        return rule

    @property
    def hears_of_all(self) -> bool:
        """Whether nodes and pods are watched; what else is need not be there."""
        return {"nodes", "pods"} <= {stream.call.resource for stream in self.streams}

    def forgive(self) -> None:
        """End all rules, and let all streams flow."""
        for rule in self._rules:
            rule.end()
        self._rules.clear()
        for flow in self._flows.values():
            flow.set()

    def hold_back(self, *resources: str) -> None:
        """Keep what the watches of these resources tell, now and later: the replica's cache is frozen."""
        for resource in resources:
            self._flows[resource].clear()

    def let_flow(self, *resources: str) -> None:
        """Deliver what was held back, and go on."""
        for resource in resources:
            self._flows[resource].set()

    def stream(self, resource: str) -> Stream:
        """Return the newest open watch of `nodes` or `pods`."""
        return [stream for stream in self.streams if stream.call.resource == resource][-1]

    async def followed(self, stream: Stream) -> None:
        """Wait until a newer watch of the same resource than this one is open."""
        resource = stream.call.resource
        await until(lambda: any(one.call.resource == resource and one.call.at > stream.call.at for one in self.streams))

    def count(self, kind: Kind, resource: str = "") -> int:
        """Return how many calls of a kind there were, of one resource or of all."""
        return sum(call.kind is kind and resource in ("", call.resource) for call in self.calls)

    def statuses(self, kind: Kind) -> list[int]:
        """Return what the server said to the calls of a kind that reached it."""
        return [status for call, status in self.answered if call.kind is kind]

    async def fetch(self, path: str) -> Reply:
        """Ask the server for a page ourselves, to have something to answer with later."""
        async with self._session.get(self._cluster["server"] + path) as answer:
            return Reply(answer.status, {"Content-Type": "application/json"}, await answer.read())

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body, now = await request.read(), asyncio.get_running_loop().time()
        call = Call(request.method, request.path, dict(request.query), dict(request.headers), body, now)
        self.calls.append(call)
        rule = next((rule for rule in self._rules if rule.concerns(call)), None)

        async def forward() -> Reply:
            return await self._forward(request, call)

        try:
            if rule is None:
                reply: Reply | None = await forward()
            else:
                rule.met.append(call)
                reply = await rule.fault(call, forward)
        except aiohttp.ClientError:
            reply = None
        if reply is None:
            return _break(request)
        if reply.upstream is None:
            return web.Response(status=reply.status, headers=reply.headers, body=reply.body)
        return await self._relay(request, call, reply)

    async def _forward(self, request: web.BaseRequest, call: Call) -> Reply:
        headers = {key: value for key, value in call.headers.items() if key.lower() not in _HOP_BY_HOP}
        upstream = await self._session.request(
            call.method,
            self._cluster["server"] + request.path_qs,
            data=call.body or None,
            headers={**headers, "Accept-Encoding": "identity"},
        )
        self.answered.append((call, upstream.status))
        kept = {key: value for key, value in upstream.headers.items() if key.lower() not in _HOP_BY_HOP}
        if call.kind is Kind.WATCH and upstream.status == 200:
            return Reply(upstream.status, kept, upstream=upstream)
        async with upstream:
            return Reply(upstream.status, kept, await upstream.read())

    async def _relay(self, request: web.BaseRequest, call: Call, reply: Reply) -> web.StreamResponse:
        assert reply.upstream is not None
        response = web.StreamResponse(headers=reply.headers)
        response.enable_chunked_encoding()
        stream = Stream(call, request, response)
        try:
            await response.prepare(request)
            self.streams.append(stream)
            await stream.relay(reply.upstream, self._flows[call.resource], self.told[call.resource])
        except (ConnectionError, aiohttp.ClientError):
            return _break(request)
        finally:
            if stream in self.streams:
                self.streams.remove(stream)
            reply.upstream.close()
        return response


class Stream:
    """One open watch on its way to the replica."""

    def __init__(self, call: Call, request: web.BaseRequest, response: web.StreamResponse) -> None:
        self.call = call
        self._request = request
        self._response = response
        self._audible = _open()

    async def relay(self, upstream: aiohttp.ClientResponse, flow: asyncio.Event, told: set[int]) -> None:
        """Pass on whole lines as they come, while `flow` is set, and their versions to `told`."""
        rest = b""
        async for chunk in upstream.content.iter_any():
            lines, newline, rest = (rest + chunk).rpartition(b"\n")
            if newline:
                await flow.wait()
                await self._audible.wait()
                await self._response.write(lines + newline)
                told.update(map(int, _VERSION.findall(lines)))

    async def say(self, text: bytes) -> None:
        """Put something between two lines that the server never said."""
        await self._response.write(text)

    def fall_silent(self) -> None:
        """Say nothing more and stay open, as behind a firewall that has forgotten the connection."""
        self._audible.clear()

    def cut(self) -> None:
        """Break the connection, as a dying server would."""
        _break(self._request)


def _break(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _open() -> asyncio.Event:
    flow = asyncio.Event()
    flow.set()
    return flow
