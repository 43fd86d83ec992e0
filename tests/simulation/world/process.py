"""One extender process: the product's own code from the webhook's body to the API request, on virtual time.

Only the socket is not the product's: `_Api` hands each request to a simulated wire. A killed process sends nothing more
and hears nothing more; what it has sent is under way all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from random import Random
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from kubernetes.aio.client import Configuration

from benchmarks.simulated.double.api import HttpRequest
from benchmarks.simulated.double.resources import Object
from extender.binding.intents import Intent, Reply
from extender.binding.outcome import Outcome
from extender.config.document import ExtenderConfiguration
from extender.features.configuration import WholeConfiguration
from extender.features.queue.feature import Queue
from extender.features.registry import FEATURES
from extender.kit.clock import Instant
from extender.kubernetes import connections
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.rest import Flow
from extender.kubernetes.rest import Request as ProductRequest
from extender.service import Extender
from extender.verbs.wire import (
    ExtenderBindingArgs,
    ExtenderFilterResult,
    HostPriority,
    decode_args,
    decode_binding_args,
    decode_filter_args,
    encode,
)
from tests.simulation.storm import Storm
from tests.simulation.trace import Trace
from tests.simulation.wording import intent_words, reply_words
from tests.simulation.world.feed import Feed
from tests.simulation.world.server import EPOCH, Server
from tests.simulation.world.wire import Answer, Wire
from tests.world.faults import Fault

SCHEDULER_NAME = "gpu-scheduler"
BIND_SECONDS = 3.0
"""The product's default deadline."""
PAGE_SIZE = 4
"""So small that lists have several pages."""
_LONGEST_FREEZE_SECONDS = 20.0

T = TypeVar("T")


class Witness(Protocol):
    """Whoever watches over what a process says and asks."""

    def asks(self, process: Process, intent: Intent) -> None:
        """Take note of an intent."""

    def hears(self, process: Process, intent: Intent, reply: Reply) -> None:
        """Take note of its reply."""

    def sends(self, process: Process, request: HttpRequest, *, early: bool) -> None:
        """Take note of a request; `early`: the server has asked for a pause that is not over."""

    def receives(self, process: Process, request: HttpRequest, answer: Answer) -> None:
        """Take note of its answer."""

    def filtered(self, process: Process, result: ExtenderFilterResult) -> None:
        """Take note of an answer to filter."""

    def bound(self, process: Process, args: ExtenderBindingArgs, outcome: Outcome, seconds: float) -> None:
        """Take note of an answer to bind."""

    def died(self, process: Process, causes: Mapping[str, str]) -> None:
        """Take note of background tasks that ended on their own."""


def configuration(orphan_seconds: float, *, steered: bool = False, queued: bool = False) -> ExtenderConfiguration:
    """Return the product's defaults, but for small pages, short queues, and for times that would outlast a run."""
    return WholeConfiguration.model_validate(
        {
            "watch": {"pageSize": PAGE_SIZE, "stream": 9.0, "silence": 12.0},
            "kubernetes": {"requestTimeout": 5.0},
            "scheduling": {
                "hold": 6.0,
                "bindDeadline": BIND_SECONDS,
                "appraiseAfter": "1h",
                "schedulerNames": (SCHEDULER_NAME,),
            },
            "steering": {"enabled": steered, "queue": 1, "nodes": 1, "life": 2.0},
            "queue": {"enabled": queued},
            "reconcile": {"orphanAfter": orphan_seconds},
        }
    )


class Clock:
    """A process's own idea of time: monotonic runs at another rate, wall jumps."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.wall_offset_seconds = 0.0

    def __call__(self) -> Instant:
        """Return this moment as the process sees it."""
        true = asyncio.get_running_loop().time()
        return Instant(1000.0 + self.rate * true, EPOCH.timestamp() + true + self.wall_offset_seconds)


class Process:
    """A place where an extender runs, again and again."""

    def __init__(self, name: str, server: Server, storm: Storm, trace: Trace, witness: Witness, random: Random) -> None:
        self.name = name
        mix = storm.mix
        self.config = configuration(mix.orphan_seconds, steered=mix.steered, queued=mix.queued_ratio > 0)
        self.coincide: Callable[[], None] = lambda: None
        """Is called when a Binding is held: the time for bad luck."""
        self.starts = 0
        self.extender: Extender | None = None
        self.clock = Clock(1.0)
        self.server = server
        self.storm = storm
        self.trace = trace
        self.witness = witness
        self.random = random
        self.wire = Wire(name, server, storm, trace, random)
        self._work: dict[asyncio.Task[Any], None] = {}
        self._frozen_until = 0.0
        self._busy_until: dict[Flow, float] = {}

    async def start(self) -> None:
        """Begin from nothing but the API."""
        self.starts += 1
        self._frozen_until = 0.0
        self._busy_until.clear()
        self.trace.note(self.name, f"starts for the {self.starts}. time")
        self.extender = Extender(self.config, _Api(self), FEATURES, clock=self.clock, random=self.random)
        if queue := self.extender.features.get(Queue):
            queue.leadership = None  # all plan at once: safety must not depend on a leader
        await self.extender.__aenter__()

    def kill(self) -> None:
        """End it without a word."""
        extender, self.extender = self.extender, None
        if extender is None:
            return
        self._notice_deaths(extender)
        for task in self._work:
            task.cancel()
        self._end = asyncio.create_task(extender.__aexit__(None, None, None))

    def freeze(self) -> None:
        """Stop it for a while, in the middle of whatever it does."""
        self._frozen_until = asyncio.get_running_loop().time() + self.random.uniform(1.0, _LONGEST_FREEZE_SECONDS)

    def notice_deaths(self) -> None:
        """Report what ended that should run for ever."""
        if self.extender is not None:
            self._notice_deaths(self.extender)

    def knows(self, node: str, bound: Mapping[str, str]) -> bool:
        """Whether it is not running, or has heard of these pods (UID → resourceVersion) on the node, and of no others."""
        if self.extender is None:
            return True
        state = self.extender.state
        return state.synced and bound == {
            pod.uid: pod.pod.metadata.resource_version for pod in state.pods.bound_to(node)
        }

    async def filter(self, body: Object) -> ExtenderFilterResult:
        """Serve filter; raises `ConnectionResetError` when nobody listens."""
        extender = self._alive()
        result = await extender.filter(decode_filter_args(encode(body)))
        self.witness.filtered(self, result)
        return result

    async def prioritize(self, body: Object) -> list[HostPriority]:
        """Serve prioritize; raises `ConnectionResetError` when nobody listens."""
        return await self._alive().prioritize(decode_args(encode(body)))

    async def bind(self, body: Object) -> Outcome:
        """Serve bind to its end, whether or not the caller waits; raises `ConnectionResetError` when the process dies."""
        return await self._serve(self._bind(self._alive(), decode_binding_args(encode(body))))

    async def request(self, request: ProductRequest) -> Answer:
        """Put one request of the process on the wire; never returns when the process dies of it."""
        loop, random = asyncio.get_running_loop(), self.random
        url = urlsplit(request.path)
        sent = HttpRequest(
            request.method, url.path, dict(parse_qsl(url.query)), request.content_type, request.body or b""
        )
        if self.storm.strikes(Fault.CRASH_BEFORE, random):
            self.trace.fault(Fault.CRASH_BEFORE, self.name, f"{sent.method} {sent.path}")
            return await self._die()
        held = max(0.0, self._frozen_until - loop.time())
        if sent.path.endswith("/binding") and (late := self.storm.hold(Fault.LATE_BINDING, random)):
            self.trace.fault(Fault.LATE_BINDING, self.name, f"for {late:.1f} s")
            self.coincide()
            held += late
        if self.storm.strikes(Fault.CRASH_AFTER, random):
            self.trace.fault(Fault.CRASH_AFTER, self.name, f"{sent.method} {sent.path}")
            loop.call_later(held + random.uniform(0.001, 5.0), self.server.answer, self.name, sent)
            return await self._die()
        self.witness.sends(self, sent, early=loop.time() < self._busy_until.get(request.flow, 0.0))
        answer = await self.wire.call(sent, held_seconds=held)
        await self.awake()
        if answer.status == 429:
            self._busy_until[request.flow] = loop.time() + float(answer.headers["Retry-After"])
        self.witness.receives(self, sent, answer)
        return answer

    async def awake(self) -> None:
        """Wait while the process is frozen."""
        await self.storm.sleep(self._frozen_until - asyncio.get_running_loop().time())

    def keeps_time(self, seconds: float) -> bool:
        """Whether its clock goes as the true one does, and it has not been frozen for so long."""
        return self.clock.rate == 1.0 and self._frozen_until < asyncio.get_running_loop().time() - seconds

    async def _bind(self, extender: Extender, args: ExtenderBindingArgs) -> Outcome:
        started = asyncio.get_running_loop().time()
        outcome = await extender.bind(args)
        self.witness.bound(self, args, outcome, asyncio.get_running_loop().time() - started)
        return outcome

    async def _serve(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._work[task] = None
        task.add_done_callback(self._work.pop)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ConnectionResetError("the extender died") from None
            raise

    async def _die(self) -> Answer:
        loop = asyncio.get_running_loop()
        loop.call_soon(self.kill)
        never: asyncio.Future[Answer] = loop.create_future()
        return await never

    def _alive(self) -> Extender:
        if self.extender is None:
            raise ConnectionResetError("connection refused")
        return self.extender

    def _notice_deaths(self, extender: Extender) -> None:
        causes = {name: cause for name, cause in extender.condition.life().items() if cause is not None}
        if causes:
            self.witness.died(self, causes)


class _Api(KubeApi):
    """The product's API client on a simulated socket."""

    def __init__(self, process: Process) -> None:
        super().__init__(_no_login, request_timeout_seconds=process.config.kubernetes.request_timeout)
        self._configuration = Configuration()
        self._process = process
        self._random = process.random

    async def execute(self, intent: Intent, timeout_seconds: float) -> Reply:
        process = self._process
        process.trace.note(process.name, intent_words(intent))
        process.witness.asks(process, intent)
        reply = await super().execute(intent, timeout_seconds)
        process.trace.note(process.name, f"{intent_words(intent)} → {reply_words(reply)}")
        process.witness.hears(process, intent, reply)
        return reply

    async def _ask(self, request: ProductRequest) -> connections.HttpResponse:
        answer = await self._process.request(request)
        headers = {name.lower().encode(): value.encode() for name, value in answer.headers.items()}
        return connections.HttpResponse(answer.status, headers, answer.body)

    async def _start(self, request: ProductRequest) -> Any:
        return _Response(self._process, await self._process.request(request))


async def _no_login() -> Any:
    raise AssertionError("nobody asks who we are")


class _Response:
    """As much of aiohttp's response as the product uses."""

    def __init__(self, process: Process, answer: Answer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._process = process
        self._answer = answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    @property
    def content(self) -> Self:
        return self

    async def iter_any(self) -> AsyncGenerator[bytes]:
        process, stream = self._process, self._answer.stream
        if stream is None:
            yield self._answer.body
            return
        feed = Feed(
            process.name,
            stream,
            process.server.store,
            process.storm,
            process.trace,
            Random(process.random.getrandbits(64)),
        )
        async for chunk in feed.chunks():
            await process.awake()
            yield chunk
