"""What became of a pod, as one trace: the verbs that were answered about it, and what a bind asked of the API server.

Off unless an endpoint is named (`OTEL_EXPORTER_OTLP_ENDPOINT`), and then nothing of OpenTelemetry's SDK is imported. The
ID of a trace is derived from the pod's UID alone. So verbs that several extenders answer are one trace, and a sampler
keeps all of a pod or nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

from extender.kit.plain_structlog import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

Answered = TypeVar("Answered")

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVICE: Final = "gputopo-extender"
"""What we are called, unless `OTEL_SERVICE_NAME` says something else."""

log = structlog.get_logger(__name__)

_tracer: ContextVar[Tracer | None] = ContextVar("tracer", default=None)
"""Of the verb that is being answered."""
_pod: ContextVar[str] = ContextVar("pod")
"""The UID of whose trace begins."""
_UNTRACED: Final[AbstractContextManager[Callable[[int], None]]] = nullcontext(lambda _: None)


class Traces:
    """Where spans go."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("gputopo")

    async def verb(
        self, name: str, uid: str, answer: Awaitable[Answered], told: Callable[[Answered], Mapping[str, Any]]
    ) -> Answered:
        """Wait for the answer to a verb about a pod; what is `told` of it becomes attributes."""
        from opentelemetry.trace import SpanKind

        of_pod, of_tracer = _pod.set(uid), _tracer.set(self._tracer)
        try:
            with self._tracer.start_as_current_span(name, kind=SpanKind.SERVER) as span:
                answered = await answer
                if span.is_recording():
                    span.set_attribute("k8s.pod.uid", uid)
                    span.set_attributes(
                        {f"gputopo.{key}": value for key, value in told(answered).items() if value is not None}
                    )
                return answered
        finally:
            _tracer.reset(of_tracer)
            _pod.reset(of_pod)


def request(method: str, what: str) -> AbstractContextManager[Callable[[int], None]]:
    """Trace a request to the API server, if it is for a verb that is traced; what is given is told the answer's status."""
    tracer = _tracer.get()
    return _UNTRACED if tracer is None else _request(tracer, method, what)


def trace_id(uid: str) -> int:
    """Return the trace of a pod: half of a hash, for in a UID are bits that are no chance, and samplers go by those.

    >>> f"{trace_id('uid'):032x}"
    '17b788a70eeccbdc2fcb2d2d3db216c0'
    """
    return int.from_bytes(sha256(uid.encode()).digest()[:16], "big")


@contextmanager
def started(environment: Mapping[str, str]) -> Iterator[Traces | None]:
    """Give where spans go, if the environment names an endpoint; what is left is sent at the end."""
    endpoint = next((environment[name] for name in ENDPOINTS if environment.get(name)), None)
    is_off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none"
    )
    provider = None if endpoint is None or is_off else _provider()
    if provider is None:
        yield None
        return
    log.info("traces are sent", endpoint=endpoint)
    try:
        yield Traces(provider)
    finally:
        provider.shutdown()


@contextmanager
def _request(tracer: Tracer, method: str, what: str) -> Iterator[Callable[[int], None]]:
    from opentelemetry.trace import SpanKind

    attributes = {"http.request.method": method, "url.path": what.partition("?")[0]}
    with tracer.start_as_current_span(f"{method} API", kind=SpanKind.CLIENT, attributes=attributes) as span:
        yield lambda status: span.set_attribute("http.response.status_code", status)


def _provider() -> TracerProvider | None:
    """Return what makes and sends spans as the standard variables say, `None` where the libraries are not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    except ImportError as error:
        log.warning(
            "no traces", reason=f"an endpoint is named, and gputopo is installed without its extra `traces`: {error}"
        )
        return None

    class PodIds(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return trace_id(_pod.get())

    resource = Resource.create().merge(Resource({SERVICE_NAME: SERVICE})).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, id_generator=PodIds(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
