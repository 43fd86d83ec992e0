"""One merge patch on our own Node, under our own name; what the server says comes back as a value or a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from agent.errors import ApiError
from agent.node.condition import GpuCondition
from agent.node.kube import KubernetesNode
from agent.node.watch import NodeVersion


class Server:
    """An API server that gives one answer, and one to those that watch, and remembers what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body: Any = {"metadata": {"annotations": {"a": "b"}}}
        self.stream = b""
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_PATCH(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def log_message(self, *_: object) -> None:
                pass

            def _answer(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.requests.append((self.command, self.path, headers, json.loads(sent) if sent else None))
                watches = "watch=true" in self.path and server.status == 200
                raw = server.body if isinstance(server.body, bytes) else json.dumps(server.body).encode()
                reply = server.stream if watches else raw
                self.send_response(server.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def kubeconfig(folder: Path, url: str) -> Path:
    """Write a kubeconfig with a bearer token."""
    file = folder / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {"token": "secret"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return file


@pytest.fixture
def server() -> Iterator[Server]:
    """Serve on a free port, and stop."""
    server = Server()
    yield server
    server.close()


@pytest.fixture
def node(server: Server, tmp_path: Path) -> KubernetesNode:
    """Return the port to node-1 on that server."""
    return KubernetesNode("node-1", kubeconfig(tmp_path, server.url), None, 5.0)


DEEP = b'{"f:a":' * 200_000 + b"1" + b"}" * 200_000
STATUS = "/metadata/annotations/topo.gputopo.dev~1status"


def test_write_rests_on_the_status_that_was_read(server: Server, node: KubernetesNode) -> None:
    """With our field manager, so that people see who wrote what; nothing else of the Node is touched."""
    server.body = {"metadata": {"annotations": {"topo.gputopo.dev/status": "old"}}}
    node.read()
    assert node.write({"topo.gputopo.dev/status": "new"}) == {"topo.gputopo.dev/status": "old"}
    method, path, headers, body = server.requests[1]
    assert (method, path) == ("PATCH", "/api/v1/nodes/node-1?fieldManager=gputopo-agent")
    assert headers["content-type"] == "application/json-patch+json"
    assert headers["authorization"] == "Bearer secret"
    assert body == [
        {"op": "test", "path": STATUS, "value": "old"},
        {"op": "add", "path": STATUS, "value": "new"},
    ]


def test_first_write_rests_on_there_being_none(server: Server, node: KubernetesNode) -> None:
    """On a node with annotations of others, and on one with none at all."""
    server.body = {"metadata": {"annotations": {"a": "b"}}}
    node.read()
    node.write({"topo.gputopo.dev/status": "new"})
    assert server.requests[1][3][0] == {"op": "test", "path": STATUS, "value": None}
    server.body = {"metadata": {}}
    node.read()
    node.write({"topo.gputopo.dev/status": "new"})
    assert [step["op"] for step in server.requests[3][3]] == ["test", "add"]
    assert server.requests[3][3][1]["value"] == {"topo.gputopo.dev/status": "new"}


def test_read_is_one_get(server: Server, node: KubernetesNode) -> None:
    """A Node without annotations has none."""
    server.body = {"metadata": {}}
    assert node.read() == {}
    assert server.requests[0][:2] == ("GET", "/api/v1/nodes/node-1")


def event(kind: str, version: str, **annotations: str) -> bytes:
    """Return one line of a watch."""
    node = {"metadata": {"resourceVersion": version, "annotations": annotations}}
    return json.dumps({"type": kind, "object": node}).encode() + b"\n"


def test_version_says_whether_the_driver_is_to_be_left_alone(server: Server, node: KubernetesNode) -> None:
    """By the labels of others, or by our own annotation."""
    labels = {"nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"}
    labelled = {"metadata": {"resourceVersion": "9", "labels": labels}}
    server.stream = event("ADDED", "8", **{"gputopo.dev/pause": ""})
    server.stream += json.dumps({"type": "MODIFIED", "object": labelled}).encode() + b"\n"
    assert [version.paused for version in node.follow()] == ["paused", "paused: MIG change"]


def test_following_the_node_tells_each_version_and_what_is_asked(server: Server, node: KubernetesNode) -> None:
    """One watch of our own node, from the server's cache on; bookmarks only show that it lives."""
    told = {"alloc.gputopo.dev/look": "8", "alloc.gputopo.dev/ledger": "{}"}
    server.stream = event("ADDED", "8") + event("BOOKMARK", "9") + event("MODIFIED", "10", **told)
    assert list(node.follow()) == [NodeVersion("8"), NodeVersion("10", look="8", ledger="{}")]
    method, path, *_ = server.requests[0]
    assert (method, path.partition("?")[0]) == ("GET", "/api/v1/nodes")
    assert {"watch=true", "fieldSelector=metadata.name%3Dnode-1", "resourceVersion=0"} < set(path[14:].split("&"))


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b'{"type":"ERROR","object":{"code":410,"message":"gone"}}', 410),
        (b"half a li", 200),
        (b"[]", 200),
        (b'{"type":"ADDED","object":{}}', 200),
        (b'{"type":"ADDED","object":' + DEEP + b"}", 200),
    ],
)
def test_watch_that_makes_no_sense_is_an_error(line: bytes, status: int, server: Server, node: KubernetesNode) -> None:
    """Whoever follows begins anew, after a pause."""
    server.stream = event("ADDED", "8") + line
    with pytest.raises(ApiError) as caught:
        list(node.follow())
    assert caught.value.status == status


def test_watch_that_is_forbidden_says_so(server: Server, node: KubernetesNode) -> None:
    """The agent of a new version with the role of an old one works on, and is asked in vain."""
    server.status, server.body = 403, {"kind": "Status", "message": "because"}
    with pytest.raises(ApiError, match="because"):
        next(node.follow())


def test_a_node_that_is_too_deep_is_no_answer(server: Server, node: KubernetesNode) -> None:
    """Whoever may write to the node may nest its managed fields at will; that must end neither the watch nor the agent."""
    server.body = DEEP
    with pytest.raises(ApiError, match="no JSON"):
        node.read()


@pytest.mark.parametrize("status", [401, 403, 404, 409, 422, 429, 500, 503])
def test_refusal_carries_status_and_reason(status: int, server: Server, node: KubernetesNode) -> None:
    """And is sent once: when to try again is not decided here."""
    server.status, server.body = status, {"kind": "Status", "message": "because"}
    with pytest.raises(ApiError, match="because") as caught:
        node.write({"topo.gputopo.dev/status": "{}"})
    assert caught.value.status == status
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", [[], "text", {"metadata": None}, {}])
def test_answer_that_is_no_node_is_refused(body: object, server: Server, node: KubernetesNode) -> None:
    """A proxy's error page is not an empty Node."""
    server.body = body
    with pytest.raises(ApiError, match="no Node"):
        node.read()


def test_nobody_there_is_status_0(tmp_path: Path) -> None:
    """Distinct from every answer."""
    with pytest.raises(ApiError) as caught:
        KubernetesNode("node-1", kubeconfig(tmp_path, "http://127.0.0.1:1"), None, 1.0).read()
    assert caught.value.status == 0


def test_missing_credentials_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a pod there is no service account, and a file may be missing."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for file in (None, tmp_path / "nowhere"):
        with pytest.raises(ApiError, match="no credentials"):
            KubernetesNode("node-1", file, None, 1.0)


def test_events_are_about_the_node_that_was_read(server: Server, node: KubernetesNode) -> None:
    """By its UID, so that people see them beside it; one that is counted on is changed in place."""
    server.body = {"metadata": {"uid": "u-1", "annotations": {}}}
    node.read()
    node.post_event({"metadata": {"name": "e"}, "reason": "GPUFailed"})
    node.count_event("e", {"count": 2})
    (method, path, headers, body), counted = server.requests[1:]
    assert (method, path) == ("POST", "/api/v1/namespaces/default/events")
    assert headers["content-type"] == "application/json"
    assert body["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u-1"}
    assert counted[:2] == ("PATCH", "/api/v1/namespaces/default/events/e")
    assert counted[2]["content-type"] == "application/merge-patch+json"
    assert counted[3] == {"count": 2}


@pytest.mark.parametrize("status", [403, 500])
def test_an_event_that_is_not_taken_says_so(status: int, server: Server, node: KubernetesNode) -> None:
    """With the server's status, which decides whether it is tried again."""
    server.status, server.body = status, {"message": "no"}
    with pytest.raises(ApiError) as error:
        node.post_event({"metadata": {"name": "e"}})
    assert error.value.status == status


def test_the_condition_is_merged_by_its_type(server: Server, node: KubernetesNode) -> None:
    """By a patch of the status that names no other condition, so that the kubelet's stand whatever they are by then."""
    server.body = {"metadata": {}, "status": {"conditions": [{"type": "gputopo.dev/GPUsHealthy", "status": "True"}]}}
    node.write_condition({"type": "gputopo.dev/GPUsHealthy", "status": "False"})
    method, path, headers, body = server.requests[0]
    assert (method, path) == ("PATCH", "/api/v1/nodes/node-1/status?fieldManager=gputopo-agent")
    assert headers["content-type"] == "application/strategic-merge-patch+json"
    assert body == {"status": {"conditions": [{"type": "gputopo.dev/GPUsHealthy", "status": "False"}]}}
    assert node.condition == GpuCondition("True", "", "")


@pytest.mark.parametrize(
    "status", [None, 7, {}, {"conditions": None}, {"conditions": {}}, {"conditions": [7, {}, {"type": 7}]}]
)
def test_a_status_that_is_none_has_no_condition(server: Server, node: KubernetesNode, status: Any) -> None:
    """Whoever may write the node's status may write anything; the annotations are read all the same."""
    server.body = {"metadata": {"annotations": {"a": "b"}}, "status": status}
    assert node.read() == {"a": "b"}
    assert node.condition is None
