"""A collector of OpenTelemetry's: takes spans over OTLP/HTTP, as OpenTelemetry's own messages decode them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True, slots=True)
class Span:
    """What somebody looks at."""

    service: str
    trace: str
    id: str
    parent: str
    name: str
    attributes: dict[str, Any]
    nanoseconds: int


@dataclass
class Collector:
    """What has arrived so far, and where it goes."""

    url: str
    spans: list[Span] = field(default_factory=list)

    def of(self, trace: int) -> list[Span]:
        """Return the spans of one trace in the order of their beginnings' arrival."""
        return [span for span in self.spans if int(span.trace, 16) == trace]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces", self.path
            body = self.rfile.read(int(self.headers["Content-Length"]))
            plain = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            collector.spans += _spans(ExportTraceServiceRequest.FromString(plain))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        serving = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield collector
        finally:
            server.shutdown()
            serving.join()


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for of_resource in request.resource_spans:
        service = _attributes(of_resource.resource.attributes)["service.name"]
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                took = span.end_time_unix_nano - span.start_time_unix_nano
                ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                yield Span(service, *ids, span.name, _attributes(span.attributes), took)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
