"""A scheduler extender that agrees with everything and keeps each request exactly as kube-scheduler sent it."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.cluster.api import Api, Json
from tests.cluster.objects import GPU


@dataclass(frozen=True, slots=True)
class Request:
    """One webhook call: its verb, its head (request line and headers) and the unchanged bytes of its body."""

    verb: str
    head: str
    body: bytes


class RecordingExtender:
    """Serves filter, prioritize, bind and preempt on loopback; binds with the rights of `api`."""

    def __init__(self, api: Api) -> None:
        self.requests: list[Request] = []
        self._api = api
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    def serving(self) -> AbstractContextManager[None]:
        """Serve for the length of a `with` block."""
        return serving(self._server)

    def scheduler_configuration(self, *, node_cache_capable: bool) -> Json:
        """Return a scheduler configuration that calls this extender for GPU pods."""
        extender = {
            "urlPrefix": f"http://127.0.0.1:{self._server.server_port}/scheduler",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "bindVerb": "bind",
            "preemptVerb": "preempt",
            "weight": 10,
            "nodeCacheCapable": node_cache_capable,
            "managedResources": [{"name": GPU, "ignoredByScheduler": False}],
        }
        return {"extenders": [extender]}

    def save(self, folder: Path) -> list[Path]:
        """Write all requests so far to `folder`, numbered from the second of a verb on, and forget them.

        `filter.json` is the body, byte by byte; `filter.head` the request line and headers.
        """
        folder.mkdir(parents=True, exist_ok=True)
        requests, self.requests = self.requests, []
        seen: Counter[str] = Counter()
        bodies = []
        for request in requests:
            seen[request.verb] += 1
            name = request.verb if seen[request.verb] == 1 else f"{request.verb}-{seen[request.verb]}"
            (folder / f"{name}.head").write_text(request.head)
            bodies.append(folder / f"{name}.json")
            bodies[-1].write_bytes(request.body)
        return bodies

    def _answer(self, verb: str, call: Json) -> Any:
        if verb == "filter":
            return {"NodeNames": call["NodeNames"], "Nodes": call["Nodes"]}
        if verb == "prioritize":
            names = call["NodeNames"] or [node["metadata"]["name"] for node in call["Nodes"]["items"]]
            return [{"Host": name, "Score": 5} for name in names]
        if verb == "preempt":
            return {"NodeNameToMetaVictims": call["NodeNameToMetaVictims"]}
        self._bind(call)
        return {"Error": ""}

    def _bind(self, call: Json) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": call["PodName"], "uid": call["PodUID"]},
            "target": {"kind": "Node", "name": call["Node"]},
        }
        self._api.post(f"/api/v1/namespaces/{call['PodNamespace']}/pods/{call['PodName']}/binding", binding)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        extender = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                verb = self.path.rsplit("/", 1)[-1]
                body = self.rfile.read(int(self.headers["Content-Length"]))
                head = f"{self.requestline}\n" + "".join(f"{k}: {v}\n" for k, v in self.headers.items())
                extender.requests.append(Request(verb, head, body))
                answer = json.dumps(extender._answer(verb, json.loads(body))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        return Handler


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    """Serve in a thread for the length of a `with` block."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
